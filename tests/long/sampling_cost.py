"""Measures the share of a model's time that sampling takes, alternating runs with and without it.

    python -m tests.long.sampling_cost [--board a57] [--turns 400] [--inferences 20] [--model FILE]

Without a board, on this machine, by CPU time of the thread, or by its instructions if they can be
counted; on a virtual board always by instructions. Each turn with sampling is compared with the
adjacent one without; the median of those ratios counts. A batch, which is written once in ten
minutes, is measured at the end; its share is relative to ten minutes of back-to-back inferences, by
their measured time or, on a virtual board, at its core's clock and one instruction per cycle. Exit
code 1 if both together are above 1%.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from edgekit.device.runtime.agent.sampler import BUDGET, PERIOD_SECONDS
from edgekit.host import compile_model, connect
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.virtual import BoardOptions, down, find_running, up

_ROOT = Path(__file__).parents[2]
_MODEL = _ROOT / "models" / "face_detection_short_range.tflite"
_PROBE = _ROOT / "tests" / "support" / "sampling_probe.py"
_HERTZ = 1e9  # a board's clock, and thus its instructions per second
_SECONDS = 3600.0


@contextlib.contextmanager
def device_of(board: str, folder: Path) -> Iterator[Device]:
    """An empty board, available within the block."""
    if not board:
        yield Device(LocalTransport(folder), own=True)
        return
    up(board, options=BoardOptions(counting=True))
    try:
        yield connect(board)
    finally:
        down(board)


def run(device: Device, model: Path, turns: int, inferences: int) -> int:
    device.deploy(compile_model(model, board=device.profile))
    transport = device.transport
    transport.put(_PROBE.read_bytes(), "sampling_probe.py", deadline=_SECONDS)
    command = [transport.python, "sampling_probe.py", ".", str(turns), str(inferences)]
    done = transport.run(command, deadline=_SECONDS)
    assert done.exit_code == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    ratio = median(sampled / plain for plain, sampled in found["turns"])
    each = median(plain for plain, _ in found["turns"]) / inferences
    share = found["batch"] / (PERIOD_SECONDS * _HERTZ)
    print(
        f"{turns * inferences} inferences of {model.stem} with sampling beside as many without: "
        f"{ratio - 1:+.3%} of {each:,.0f} {found['unit']}; a batch {found['batch']:,}, "
        f"{share:.4%} of ten minutes"
    )
    return 0 if ratio - 1 + share <= BUDGET else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="", help="a virtual one; this machine if left out")
    parser.add_argument("--model", type=Path, default=_MODEL)
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--inferences", type=int, default=20)
    options = parser.parse_args()
    if options.board and find_running(options.board) is not None:
        print(f"sampling_cost: expected {options.board} to be down, found it up")
        return 2
    with (
        tempfile.TemporaryDirectory() as folder,
        device_of(options.board, Path(folder)) as device,
    ):
        return run(device, options.model, options.turns, options.inferences)


if __name__ == "__main__":
    sys.exit(main())

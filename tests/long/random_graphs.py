"""Compiles random networks and compares their outputs with ONNX Runtime's.

    python -m tests.long.random_graphs --count 5000 [--first 0] [--board local ...] [--type f32 ...]

Cycles through boards and number types. Boards other than the local one run under qemu-user. A
network is wrong if its library differs from ONNX Runtime by more than rounding can explain, rolled
back if its golden outputs fail the health check, and refused if the compiler rejects what ONNX
Runtime runs. Prints each failure with its seed; exit code 1 if any network was wrong or rolled
back.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from edgekit.host.compiler.artifact import Artifact
from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.compiler.ir.types import Array
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, VirtualBoard, compile_driver
from tests.long.zoo_one import apart, nudged
from tests.support.golden_runs import worst_of_golden
from tests.support.kernel_runs import run_here
from tests.support.random_networks import TYPES, random_network

_BOARDS = ("local", "a57", "a76", "a7", "rv64gc", "rv64gcv", "bpi-f3")
_BATCH = 25  # networks per process: a crash of generated code costs a batch, not the run
_SECONDS = 3600  # per batch
_NUDGES = 3
_MARGIN = 16  # an output may differ by this multiple of the peer's change under nudges
# By number type: relative size of a nudge, and the floor of the tolerance relative to the output's
# largest magnitude (a different order of summation; some steps of codes), which is 1 at least
# in networks of codes: their steps do not get smaller with the output.
_ROUNDING = {"f32": (2.0**-22, 2e-4), "f16": (2.0**-11, 2e-2), "s16": (2.0**-14, 1e-3)}
_CODES = (2.0**-6, 0.12)

Peer = Callable[[Mapping[str, Array]], list[Array]]


def onnx_peers(content: bytes) -> list[Peer]:
    """ONNX Runtime with and without its graph optimizations."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    peers: list[Peer] = []
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        peers.append(lambda inputs, session=session: session.run(None, dict(inputs)))
    return peers


def judge(seed: int, board: str, kind: str, runner: VirtualBoard | None) -> tuple[str, str]:
    """The verdict on one network, and its reason."""
    content = random_network(seed, kind).SerializeToString()
    try:
        peers = onnx_peers(content)
    except Exception as error:  # the peer's own limits, of many types
        return "no peer", str(error)[:200]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(content)
        try:
            artifact = compile_artifact(path, load_board(board))
        except InputError as error:
            return "refused", str(error)
        (path.parent / "model.so").write_bytes(artifact.library)
        (path.parent / "weights.bin").write_bytes(artifact.weights)
        return _compared(artifact, path.parent, runner, peers, seed, kind)


def _compared(
    artifact: Artifact,
    folder: Path,
    runner: VirtualBoard | None,
    peers: Sequence[Peer],
    seed: int,
    kind: str,
) -> tuple[str, str]:
    rng = np.random.default_rng(seed)
    shape, dtype = artifact.golden.inputs[0].shape, artifact.golden.inputs[0].dtype
    random_input = rng.normal(0, 1, shape).astype(dtype)
    runs = [{"x": artifact.golden.inputs[0]}, {"x": random_input}]
    found = _run(artifact, folder, runner, runs)
    worst = worst_of_golden(found[0], artifact.golden)
    if not worst <= 1:
        return "rolled back", f"{worst:.3g} of the tolerance"
    nudge, floor = _ROUNDING.get(kind, _CODES)
    wanted = [peer(runs[1]) for peer in peers]
    moved = [peers[0](nudged(runs[1], rng, nudge)) for _ in range(_NUDGES)] + [wanted[1]]
    most = 0.0
    for number, (y, want) in enumerate(zip(found[1], wanted[0], strict=True)):
        spread = max(apart(m[number], want) for m in moved)
        largest = float(np.abs(np.nan_to_num(want.astype(np.float64))).max(initial=0))
        allowed = _MARGIN * spread + floor * max(largest, 1e-3 if kind in _ROUNDING else 1.0)
        most = max(most, apart(y, want) / allowed)
        if not np.array_equal(np.isnan(y), np.isnan(want)):
            return "wrong", f"output {number}: NaN in other places"
    return ("right" if most <= 1 else "wrong"), f"{most:.3g} of what it may differ"


def _run(
    artifact: Artifact,
    folder: Path,
    runner: VirtualBoard | None,
    runs: Sequence[Mapping[str, Array]],
) -> list[list[Array]]:
    """The outputs of each run."""
    if runner is None:
        each = [run_here(folder, dict(inputs)) for inputs in runs]
        return [list(outputs.values()) for outputs in each]
    stacked = Cases((np.stack([inputs["x"] for inputs in runs]),), steps=1)
    rows = runner.run(folder, stacked, folder)
    return [[row[i] for row in rows] for i in range(len(runs))]


def _batch(first: int, count: int, boards: Sequence[str], kinds: Sequence[str]) -> int:
    """Judges networks in this process, one line per network."""
    warnings.simplefilter("ignore")
    drivers = Path(tempfile.mkdtemp())
    runners: dict[str, VirtualBoard | None] = {"local": None}
    for seed in range(first, first + count):
        board = boards[seed % len(boards)]
        kind = kinds[seed // len(boards) % len(kinds)]
        if board not in runners:
            profile = load_board(board)
            driver = drivers / profile.arch
            if not driver.exists():
                compile_driver(profile.target, driver)
            runners[board] = VirtualBoard(profile.arch, CPUS[board], driver)
        print(f"{seed} {board} {kind}", end=" ", flush=True)
        begin = time.process_time()
        try:
            verdict, detail = judge(seed, board, kind, runners[board])
        except (EdgekitError, AssertionError, ValueError, KeyError) as error:
            verdict, detail = "crashed", f"{type(error).__name__}: {error}"
        print(
            f"| {verdict} | {time.process_time() - begin:.1f} s | {detail[:300]}".replace("\n", " ")
        )
    return 0


def _in_process(first: int, count: int, boards: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """The lines of a batch; a network that ended its process is crashed, the rest follows."""
    lines: list[str] = []
    while len(lines) < count:
        arguments = [
            "--batch",
            "--first",
            str(first + len(lines)),
            "--count",
            str(count - len(lines)),
        ]
        for name, values in (("--board", boards), ("--type", kinds)):
            arguments += [a for v in values for a in (name, v)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.long.random_graphs", *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        made = done.stdout.splitlines()
        if made and "|" not in made[-1]:
            made[-1] += f"| crashed | 0 s | code {done.returncode}: {done.stderr[-200:]}"
        if not made:
            raise SystemExit(f"random_graphs: the worker failed: {done.stderr[-2000:]}")
        lines += made
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--board", action="append", choices=_BOARDS)
    parser.add_argument("--type", action="append", choices=TYPES)
    parser.add_argument("--batch", action="store_true", help="judge in this process")
    options = parser.parse_args()
    boards, kinds = options.board or _BOARDS, options.type or TYPES
    if options.batch:
        return _batch(options.first, options.count, boards, kinds)
    verdicts: Counter[str] = Counter()
    starts = range(options.first, options.first + options.count, _BATCH)
    ends = options.first + options.count
    with ThreadPoolExecutor(2) as pool:
        batches = pool.map(lambda s: _in_process(s, min(_BATCH, ends - s), boards, kinds), starts)
        for lines in batches:
            for line in lines:
                verdict = line.split(" | ")[1] if " | " in line else line
                verdicts[verdict] += 1
                if verdict not in ("right", "no peer"):
                    print(line, flush=True)
    total = sum(verdicts.values())
    print(f"{total} networks:", ", ".join(f"{n} {v}" for v, n in verdicts.most_common()))
    return 1 if verdicts.keys() & {"wrong", "rolled back", "crashed"} else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Measures the cost of redeploying to a restored virtual board the release that it already runs.

    python -m tests.long.redeploy [--rounds 5] [--board a57] [--model FILE] [--limit 2]

Counts the bytes through a proxy in both directions, and the seconds from connecting to the answer,
each round on a new connection. Exit code 1 if the maximum of bytes or the minimum of seconds exceed
the project's limits: 20 kB and 2 s. Meaningful times need a machine with a spare core; elsewhere,
--limit inf.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from edgekit.host import compile_model
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport
from edgekit.host.virtual import RunningBoard, down, find_running, up
from tests.support.proxy import running_proxy

_MODEL = Path(__file__).parents[2] / "models" / "face_detection_short_range.tflite"
_MOST_BYTES = 20_000
_SECONDS_LIMIT = 2.0


def deploy(board: RunningBoard, port: int, bundle: Bundle) -> bool:
    """Deploy; return whether the running release changed."""
    target = SshTarget(board.name, board.ssh_host, port, board.user, board.identity, board.host_key)
    device = Device(SshTransport(target), profile=board.profile, own=True, emulated=True)
    changed = device.deploy(bundle).release.changed
    device.transport.close()
    return changed


def run(board: RunningBoard, bundle: Bundle, rounds: int, limit: float) -> int:
    bytes_, seconds = [], []
    with running_proxy(board.ssh_host, board.ssh_port) as proxy:
        begin = time.perf_counter()
        assert deploy(board, proxy.port, bundle)
        print(f"first deploy: {proxy.total:,} bytes, {time.perf_counter() - begin:.2f} s")
        for _ in range(rounds):
            before, begin = proxy.total, time.perf_counter()
            assert not deploy(board, proxy.port, bundle)
            seconds.append(time.perf_counter() - begin)
            bytes_.append(proxy.total - before)
    print(
        f"{rounds} deploys of what runs on {board.name}: at most {max(bytes_):,} bytes, "
        f"{min(seconds):.2f} s (median {statistics.median(seconds):.2f}, most {max(seconds):.2f})"
    )
    return 0 if max(bytes_) < _MOST_BYTES and min(seconds) <= limit else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--board", default="a57")
    parser.add_argument("--model", type=Path, default=_MODEL)
    parser.add_argument("--limit", type=float, default=_SECONDS_LIMIT)
    arguments = parser.parse_args()
    if find_running(arguments.board) is not None:
        print(f"redeploy: expected {arguments.board} to be down, found it up")
        return 2
    up(arguments.board)
    down(arguments.board)
    board = up(arguments.board)  # from its snapshot
    try:
        bundle = compile_model(arguments.model, board=board.profile)
        return run(board, bundle, arguments.rounds, arguments.limit)
    finally:
        down(arguments.board)


if __name__ == "__main__":
    sys.exit(main())

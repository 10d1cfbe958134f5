"""Many boards reconnect at once to a server; all must be served.

    python -m tests.long.profile_clients [--boards 1000] [--speed 1]

Each board is a thread with its own spool, token and TLS connections; the server is a process of
`edgekit fleet serve`. All boards try at the same moment, and those that are turned away back
off as boards do, `--speed` times as fast. Exit code 1 if a board was not served, a batch was lost
or duplicated, or more than a tenth of the boards retry in the same second.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from edgekit.device.runtime.agent.push import Bandwidth, LaterError, PushTarget, push, waits
from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.fleet.profiles import ProfileStore, query
from edgekit.host.fleet.profiles.server import certificate_of, tokens_of
from tests.support.profile_batches import batch
from tests.support.profile_servers import end_server, start_server

_BATCHES = 2  # pending on each board
_BITS = 64_000  # per second
_PERIOD = 600.0
_MOST_TRIES = 100
_FILES = 4096  # open at once
_STACK_BYTES = 1 << 20
_SHARE, _FEW = 10, 10


class _Board(threading.Thread):
    """Sends its spooled batches, with the backoff of a real board between tries."""

    def __init__(
        self, spool: Spool, home: PushTarget, start: threading.Barrier, speed: float, seed: int
    ) -> None:
        super().__init__()
        self._spool, self._home, self._start, self._speed = spool, home, start, speed
        self._chance = random.Random(seed)
        self.came_again: list[float] = []  # times of retries, in seconds waited
        self.is_served = False

    def run(self) -> None:
        waited = 0.0
        self._start.wait()
        for failures in range(1, _MOST_TRIES):
            try:
                push(self._spool, self._home, Bandwidth(_BITS, sleep=self._sleep))
            except LaterError as error:
                seconds = waits(failures, error.seconds, _PERIOD, self._chance)
                waited += seconds
                self.came_again.append(waited)
                self._sleep(seconds)
            else:
                self.is_served = True
                return

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._speed)


def boards_of(folder: Path, count: int, speed: float, port: int) -> list[_Board]:
    """Boards, each with unique batches."""
    store = ProfileStore(folder / "host" / "profiles")
    certificate, tokens = certificate_of(store)[1], tokens_of(store)
    start = threading.Barrier(count)
    found = []
    for i in range(count):
        spool = Spool(folder / f"board{i}")
        for number in range(_BATCHES):
            spool.add(batch(i * _BATCHES + number, operators=30))
        name = f"board{i}"
        home = PushTarget("127.0.0.1", port, name, tokens.issue(name), certificate, _BITS)
        found.append(_Board(spool, home, start, speed, i))
    return found


def run(folder: Path, count: int, speed: float) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _FILES)), hard))
    threading.stack_size(_STACK_BYTES)
    server, port = start_server(folder / "host")
    try:
        boards = boards_of(folder, count, speed, port)
        begin = time.monotonic()
        for board in boards:
            board.start()
        for board in boards:
            board.join()
        seconds = time.monotonic() - begin
    finally:
        end_server(server)
        threading.stack_size(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    served = sum(board.is_served for board in boards)
    again = Counter(int(when) for board in boards for when in board.came_again)
    most = max(again.values(), default=0)
    sql = "SELECT count(*), count(DISTINCT uuid), count(DISTINCT board) FROM batches"
    store = ProfileStore(folder / "host" / "profiles")
    there, distinct, senders = map(int, query(store, sql, 1).rows[0])
    print(
        f"{served} of {count} boards served in {seconds * speed:.0f} s, {again.total()} tries after"
        f" the first, at most {most} in a second; {there} batches stored, {distinct} of them once"
    )
    once = there == distinct == count * _BATCHES and senders == count
    return 0 if served == count and once and most <= max(count // _SHARE, _FEW) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--boards", type=int, default=1000)
    parser.add_argument("--speed", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), options.boards, options.speed)


if __name__ == "__main__":
    sys.exit(main())

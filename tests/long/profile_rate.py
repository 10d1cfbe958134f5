"""A board sends profiles through a counting proxy: its rate must come close to 64 kbit/s.

    python -m tests.long.profile_rate [--seconds 60]

Measured in wall-clock time. Exit code 1 if the peak rate over ten seconds, including TLS overhead,
is more than a tenth off. A board sends nothing while it waits for an answer; that time is up to the
server.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgekit.device.runtime.agent.push import Bandwidth, push
from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.fleet.profiles import ProfileStore, enroll
from tests.support.profile_batches import batch
from tests.support.profile_servers import end_server, start_server
from tests.support.proxy import Proxy, running_proxy

_NAME_BITS = 400  # incompressible
_OPERATORS = 100
_MOST_OFF = 0.1
_WINDOW_SECONDS = 10.0
_LOOK_SECONDS = 0.05


@contextmanager
def watched(proxy: Proxy) -> Iterator[list[tuple[float, int]]]:
    """Sample how many bytes have passed, with timestamps."""
    seen: list[tuple[float, int]] = [(time.monotonic(), proxy.up)]
    stopped = threading.Event()

    def look() -> None:
        while not stopped.wait(_LOOK_SECONDS):
            seen.append((time.monotonic(), proxy.up))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stopped.set()
        thread.join()


def fastest(seen: list[tuple[float, int]]) -> float:
    """Peak bits per second over a window."""
    rates = []
    for now, passed in seen:
        first = bisect_left(seen, (now - _WINDOW_SECONDS, 0))
        begin, before = seen[first]
        if now - begin > _WINDOW_SECONDS / 2:
            rates.append((passed - before) * 8 / (now - begin))
    return max(rates)


def fill(spool: Spool, size: int) -> None:
    """Spool batches that take about `size` bytes on the wire."""
    chance = random.Random(1)
    for number in range(size // (_OPERATORS * _NAME_BITS // 8)):
        plain = batch(number, _OPERATORS)
        rows = (r._replace(name=f"{chance.getrandbits(_NAME_BITS):x}") for r in plain.operators)
        spool.add(replace(plain, operators=tuple(rows)))


def run(folder: Path, wanted: float) -> int:
    server, port = start_server(folder / "host")
    try:
        with running_proxy("127.0.0.1", port) as proxy:
            store = ProfileStore(folder / "host" / "profiles")
            board = LocalTransport(folder / "board", "board")
            home = enroll(Device(board), store, "127.0.0.1", proxy.port)
            spool = Spool(folder / "board" / "spool")
            fill(spool, int(home.bits_per_second / 8 * wanted))
            begin = time.monotonic()
            with watched(proxy) as seen:
                push(spool, home, Bandwidth(home.bits_per_second))
            seconds = time.monotonic() - begin
    finally:
        end_server(server)
    rate = fastest(seen)
    ratio = rate / home.bits_per_second
    print(
        f"{proxy.up:,} bytes in {seconds:.0f} s: {proxy.up * 8e-3 / seconds:.1f} kbit/s, in the "
        f"fastest {_WINDOW_SECONDS:.0f} s {rate / 1000:.1f}, which is {ratio:.1%} of the cap"
    )
    return 0 if abs(ratio - 1) <= _MOST_OFF else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), options.seconds)


if __name__ == "__main__":
    sys.exit(main())

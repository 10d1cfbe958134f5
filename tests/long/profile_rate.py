"""A board sends profiles through a proxy that counts: how near it comes to 64 kbit/s, by the clock.

    python -m tests.long.profile_rate [--seconds 60]

Exit code 1 if what went over the link, with all that TLS adds, is more than a tenth off.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from edgekit.device.agent.push import Bandwidth, push
from edgekit.device.agent.spool import Spool
from edgekit.host.profiles import ProfileStore, enroll
from edgekit.host.transport import LocalTransport
from tests.support.profile_batches import batch
from tests.support.profile_servers import end_server, start_server
from tests.support.proxy import running_proxy

_NAME_BITS = 400  # which do not compress
_OPERATORS = 100
_MOST_OFF = 0.1


def fill(spool: Spool, size: int) -> None:
    """Batches that take about `size` bytes on their way."""
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
            home = enroll(board, store, "127.0.0.1", proxy.port)
            spool = Spool(folder / "board" / "spool")
            fill(spool, int(home.bits_per_second / 8 * wanted))
            bandwidth = Bandwidth(home.bits_per_second)
            begin = time.monotonic()
            push(spool, home, bandwidth)
            bandwidth.take(0)  # until what was sent last has gone
            seconds = time.monotonic() - begin
    finally:
        end_server(server)
    found = proxy.up * 8 / seconds
    ratio = found / home.bits_per_second
    print(
        f"{proxy.up:,} bytes in {seconds:.0f} s: {found / 1000:.1f} kbit/s, {ratio:.1%} of the cap"
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

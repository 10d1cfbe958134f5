"""Puts many batches of all sizes into a spool that is rarely drained: it must stay below its cap.

    python -m tests.long.profile_spool [--batches 20000] [--seed 1]

After each change the bytes of all its files are counted. Fetched and dropped batches must add up to
all that were put in. Runs without fsync, which matters only for power cuts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.agent.spool import Disk, Spool
from tests.support.profile_batches import batch

_CAP = 1 << 20


class _Unsynced(Disk):
    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)

    def sync(self, folder: Path) -> None:
        pass


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(folder: Path, count: int, seed: int) -> int:
    chance = random.Random(seed)
    spool = Spool(folder, _CAP, _Unsynced())
    most, damaged = 0, 0
    home: set[int] = set()
    for number in range(count):
        spool.add(batch(number, operators=chance.choice((1, 10, 100, 1000))))
        most = max(most, size_of(folder))
        fetches = chance.random() < 0.01
        if chance.random() < (0.2 if fetches else 0.002):
            # Between two fetches most files are dropped, damaged or not; the oldest is fetched.
            files = sorted(folder.glob("*.batch"))
            file = files[0] if fetches else chance.choice(files)
            file.write_bytes(file.read_bytes()[: chance.randrange(100)])
            damaged += 1
        if fetches:
            fetched = spool.fetch(1 << 18)
            home.update(json.loads(body)["sequence"] for body in bodies(fetched.data))
            if chance.random() < 0.7:
                spool.acknowledge(fetched.spool, fetched.through)
            most = max(most, size_of(folder))
    while (fetched := spool.fetch(1 << 18)).data:
        home.update(json.loads(body)["sequence"] for body in bodies(fetched.data))
        spool.acknowledge(fetched.spool, fetched.through)
    unknown = count - len(home) - fetched.dropped - fetched.quarantined
    print(
        f"{count:,} batches, at most {most:,} of {_CAP:,} bytes; {len(home):,} fetched, "
        f"{fetched.dropped:,} dropped, {fetched.quarantined} of {damaged} damaged quarantined"
    )
    # A batch that was fetched but not acknowledged may also count as dropped.
    return 0 if most <= _CAP and unknown <= 0 and fetched.quarantined else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), options.batches, options.seed)


if __name__ == "__main__":
    sys.exit(main())

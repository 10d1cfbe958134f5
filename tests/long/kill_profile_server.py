"""Boards send profiles to a server that is killed at random moments and loses 30 % of its answers.

    python -m tests.long.kill_profile_server [--kills 200] [--seed 1]

Exit code 1 if any batch is lost, or is there twice.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from edgekit.device.agent.push import Bandwidth, LaterError, push
from edgekit.device.agent.spool import Spool
from edgekit.host.profiles import ProfileStore, enroll, query
from edgekit.host.transport import LocalTransport
from tests.support.profile_batches import batch

_BOARDS = 3
_ROOT = Path(__file__).parents[2]
_TRIES = 10_000


def run(folder: Path, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    store = ProfileStore(folder / "store")
    command = ["-m", "tests.support.mortal_server", str(store.folder), str(kills), str(seed)]
    server = subprocess.Popen([sys.executable, *command], cwd=_ROOT, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        boards = []
        for i in range(_BOARDS):
            transport = LocalTransport(folder / f"board{i}", f"board{i}")
            home = enroll(transport, store, "127.0.0.1", port)
            boards.append((Spool(folder / f"board{i}" / "spool"), home))
        lines = _Lines(server)
        made = failed = 0
        for _ in range(_TRIES):
            spool, home = chance.choice(boards)
            for _ in range(chance.randrange(1, 4)):
                if lines.count < kills:
                    spool.add(batch(made, operators=chance.choice((3, 30, 300))))
                    made += 1
            try:
                push(spool, home, Bandwidth(1 << 40))
            except LaterError:
                failed += 1
            if lines.count == kills and not any(spool.fetch(1).data for spool, _ in boards):
                break
    finally:
        server.kill()
        server.wait()
    sql = "SELECT count(*), count(DISTINCT uuid) FROM batches"
    there, distinct = map(int, query(store, sql, 1).rows[0])
    print(
        f"{lines.count} kills, {failed} sends that failed, {made} batches made: "
        f"{made - distinct} lost, {there - distinct} doubled"
    )
    return 0 if there == distinct == made and lines.count == kills else 1


class _Lines:
    """Counts the deaths that the server tells of."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        self.count = 0
        self._server = server
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._server.stdout is not None
        for _ in self._server.stdout:
            self.count += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), options.kills, options.seed)


if __name__ == "__main__":
    sys.exit(main())

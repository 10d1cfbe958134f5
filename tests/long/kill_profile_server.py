"""Boards send profiles to servers that are killed at random moments, over links that lose answers.

    python -m tests.long.kill_profile_server [--kills 200] [--seed 1]

The servers are processes of `edgekit fleet serve`, each killed by SIGKILL at a random moment
of its first requests. On three of ten connections the link is cut in the middle of the answer,
after everything was stored. Exit code 1 if any batch is lost or duplicated.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from edgekit.device.runtime.agent.push import Bandwidth, LaterError, PushTarget, push
from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.fleet.profiles import ProfileStore, enroll, query
from tests.support.profile_batches import batch
from tests.support.profile_servers import end_server, start_server
from tests.support.proxy import Fault, Proxy, running_proxy

_BOARDS = 3
_LOST = 0.3
_LIFE = 3.0  # maximum lifetime, in durations of a server's first request
_MANY = 1 << 40  # bits per second


class _Mortal:
    """Successive servers behind a proxy; each is killed soon after its first request."""

    def __init__(
        self, home: Path, proxy: Proxy, kills: int, seconds: float, chance: random.Random
    ) -> None:
        self.kills = 0
        self._home, self._proxy, self._most = home, proxy, kills
        self._seconds, self._chance = seconds, chance
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self.stopped.is_set():
            server, port = start_server(self._home)
            seen = self._proxy.connections
            self._proxy.server = ("127.0.0.1", port)
            try:
                if self.kills == self._most:
                    self.stopped.wait()
                    return
                while self._proxy.connections == seen and not self.stopped.is_set():
                    time.sleep(0.001)
                time.sleep(self._chance.uniform(0, self._seconds))
            finally:
                end_server(server)
            self.kills += 1


def first_request(home: PushTarget, spool: Spool, folder: Path, proxy: Proxy) -> tuple[float, int]:
    """Seconds that a server takes for its first request, and bytes until half its answer has
    arrived."""
    server, port = start_server(folder)
    try:
        proxy.server = ("127.0.0.1", port)
        begin = time.monotonic()
        push(spool, home, Bandwidth(_MANY))
        return time.monotonic() - begin, proxy.down - 100
    finally:
        end_server(server)


def run(folder: Path, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    store = ProfileStore(folder / "host" / "profiles")
    made = failed = 0
    with running_proxy("127.0.0.1", 1) as proxy:
        boards = []
        for i in range(_BOARDS):
            transport = LocalTransport(folder / f"board{i}", f"board{i}")
            home = enroll(Device(transport), store, "127.0.0.1", proxy.port)
            boards.append((Spool(folder / f"board{i}" / "spool"), home))
        spool, home = boards[0]
        spool.add(batch(made))
        made += 1
        seconds, answer = first_request(home, spool, folder / "host", proxy)
        lives = random.Random(f"{seed}/lives")
        mortal = _Mortal(folder / "host", proxy, kills, _LIFE * seconds, lives)
        mortal.thread.start()
        try:
            while mortal.thread.is_alive():
                spool, home = chance.choice(boards)
                if not spool.fetch(1).data:
                    if mortal.kills == kills:
                        if not any(other.fetch(1).data for other, _ in boards):
                            break
                        continue
                    for _ in range(chance.randrange(1, 4)):
                        spool.add(batch(made, operators=chance.choice((3, 30, 300))))
                        made += 1
                proxy.faults[:] = [Fault(answer, "down")] * (chance.random() < _LOST)
                try:
                    push(spool, home, Bandwidth(_MANY))
                except LaterError:
                    failed += 1
                    time.sleep(0.05)
        finally:
            mortal.stopped.set()
            mortal.thread.join()
    sql = "SELECT count(*), count(DISTINCT uuid) FROM batches"
    there, distinct = map(int, query(store, sql, 1).rows[0])
    print(
        f"{mortal.kills} kills, {failed} sends that failed, {made} batches made: "
        f"{made - distinct} lost, {there - distinct} doubled"
    )
    return 0 if there == distinct == made and mortal.kills == kills else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), options.kills, options.seed)


if __name__ == "__main__":
    sys.exit(main())

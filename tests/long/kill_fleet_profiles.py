"""Boards send profiles through NATS to writers, all of which are killed in turn under load.

    python -m tests.long.kill_fleet_profiles [--batches 1000000] [--seconds 8] [--seed 1]

Three NATS servers, `edgekit fleet serve --nats` and writers are processes. Every few seconds
one of them gets SIGKILL and is restarted, in turn: a NATS server, a writer, the server. Boards
resend requests that got no answer, and every tenth one that did. Exit code 1 if any row is lost or
duplicated.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

from edgekit.host.deploy.api import Device
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.fleet.profiles import ProfileStore, SharedStore, enroll, query
from tests.support.nats_servers import NatsServers, running_nats
from tests.support.profile_batches import stream
from tests.support.profile_servers import end_server, post, start_edgekit, start_server

_BOARDS = 8
_IN_REQUEST = 200
_AGAIN = 0.1
_REST = 0.5  # seconds to wait after a failure


class _Host:
    """The server and the writers, and their restarts."""

    def __init__(self, folder: Path, nats: NatsServers, writers: int, every: str) -> None:
        self._folder, self._nats = folder, nats
        self._write = (
            "fleet",
            "serve",
            "--nats",
            nats.url,
            "--store",
            f"{folder}/shared",
        )
        self._write += ("--every", every)
        self.server, self.port = start_server(folder / "host", "--nats", nats.url)
        self.writers = [start_edgekit(folder / "host", *self._write) for _ in range(writers)]
        self.kills = {"nats": 0, "writer": 0, "server": 0}

    def kill(self, kind: str, chance: random.Random) -> None:
        """Send SIGKILL, and start a replacement."""
        if kind == "nats":
            number = chance.randrange(3)
            self._nats.kill(number)
            time.sleep(1)
            self._nats.start(number)
        elif kind == "writer":
            number = chance.randrange(len(self.writers))
            _end(self.writers[number])
            self.writers[number] = start_edgekit(self._folder / "host", *self._write)
        else:
            end_server(self.server)
            self.server, self.port = start_server(self._folder / "host", "--nats", self._nats.url)
        self.kills[kind] += 1

    def end(self) -> None:
        end_server(self.server)
        for writer in self.writers:
            _end(writer)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


class _Board:
    """A board that sends its share of the batches, each until it is acknowledged."""

    def __init__(self, host: _Host, name: str, token: str, numbers: range, seed: int) -> None:
        self._host, self._name, self._token, self._numbers = host, name, token, numbers
        self._chance = random.Random(f"{seed}/{name}")
        self.failed = self.again = 0
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        for start in range(0, len(self._numbers), _IN_REQUEST):
            some = self._numbers[start : start + _IN_REQUEST]
            body = zlib.compress(stream(*some), 1)
            while True:
                if not post(self._host.port, self._name, self._token, body):
                    self.failed += 1
                    time.sleep(_REST)
                elif self._chance.random() < _AGAIN:
                    self.again += 1
                else:
                    break


def run(folder: Path, batches: int, seconds: float, seed: int, writers: int, every: str) -> int:
    chance = random.Random(seed)
    store = ProfileStore(folder / "host" / "profiles")
    with running_nats(folder / "nats", 3) as nats:
        host = _Host(folder, nats, writers, every)
        try:
            boards = []
            for i in range(_BOARDS):
                name = f"board{i}"
                token = enroll(
                    Device(LocalTransport(folder / name, name)), store, "localhost", 1
                ).token
                share = range(i * batches // _BOARDS, (i + 1) * batches // _BOARDS)
                boards.append(_Board(host, name, token, share, seed))
            begin = time.monotonic()
            for board in boards:
                board.thread.start()
            for kind in itertools.cycle(("nats", "writer", "server")):
                end = time.monotonic() + seconds
                while time.monotonic() < end and any(b.thread.is_alive() for b in boards):
                    time.sleep(0.1)
                if not any(board.thread.is_alive() for board in boards):
                    break
                host.kill(kind, chance)
            sent = time.monotonic() - begin
        finally:
            host.end()
        last = start_edgekit(
            folder / "host",
            *(
                "fleet",
                "serve",
                "--nats",
                nats.url,
                "--store",
                f"{folder}/shared",
                "--once",
            ),
        )
        shown = last.communicate()[0].decode().strip()
    sql = "SELECT count(*), count(DISTINCT uuid) FROM batches"
    there, distinct = map(int, query(SharedStore(f"{folder}/shared"), sql, 1).rows[0])
    sql = "SELECT count(*) FROM operators"
    rows = int(query(SharedStore(f"{folder}/shared"), sql, 1).rows[0][0])
    print(
        f"{batches} batches in {sent:.0f} s, {host.kills} kills: {batches - distinct} lost, "
        f"{there - distinct} doubled, {rows} rows; {sum(b.failed for b in boards)} requests "
        f"failed, {sum(b.again for b in boards)} were sent again though answered; the last writer "
        f"{shown!r}"
    )
    return 0 if there == distinct == batches and rows == 2 * batches else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=8.0, help="between kills")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--every", default="5s", help="as of fleet serve")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(
            Path(folder),
            options.batches,
            options.seconds,
            options.seed,
            options.writers,
            options.every,
        )


if __name__ == "__main__":
    sys.exit(main())

"""Hundreds of hostile clients at a profile server, which serves good boards all the same.

    python -m tests.long.hostile_clients [--clients 500] [--addresses 50] [--seconds 60]

The clients of `tests/support/hostile.py` hold and flood the server from a process of their own:
slow handshakes, heads and bodies, garbage, no token, odd lengths, half-closed connections, and
enrolled boards that send what costs most. Meanwhile good boards send a batch each every second.
Half of them have sent before, from 127.0.0.1, where some attackers are, too; the others come later
from addresses that the server has not seen. Exit code 1 if a board was turned away or waited for
more than `--limit` seconds, if a batch is lost or doubled, or if the server's log has a traceback.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path
from statistics import median

from edgekit.host.fleet.profiles import ProfileStore, query
from edgekit.host.fleet.profiles.server import certificate_of, tokens_of
from tests.support.profile_batches import stream
from tests.support.profile_servers import end_server, post, start_server

_ROOT = Path(__file__).parents[2]
_EVIL = 8  # enrolled boards among the attackers
_SECONDS_LIMIT = 2.0
_FILES = 4096  # open at once
_ROWS = 66  # operators of a batch


class _Board(threading.Thread):
    """Sends a batch every second, from `source`, until `ended`."""

    def __init__(self, port: int, name: str, token: str, source: str, ended: threading.Event):
        super().__init__(name=name)
        self._port, self._token, self._source, self._ended = port, token, source, ended
        self.times: list[float] = []
        self.failed = 0

    def run(self) -> None:
        while True:
            body = zlib.compress(stream(len(self.times), operators=_ROWS))
            begin = time.monotonic()
            while not post(self._port, self.name, self._token, body, self._source):
                self.failed += 1
                time.sleep(0.1)
            self.times.append(time.monotonic() - begin)
            if self._ended.wait(1.0):
                return


def good_boards(store: ProfileStore, port: int, count: int, ended: threading.Event) -> list[_Board]:
    tokens = tokens_of(store)
    sources = [f"127.1.0.{number + 1}" if number % 2 else "127.0.0.1" for number in range(count)]
    return [
        _Board(port, f"good{number}", tokens.issue(f"good{number}"), source, ended)
        for number, source in enumerate(sources)
    ]


def run(
    folder: Path,
    clients: int,
    addresses: int,
    seconds: float,
    boards: int = 20,
    limit: float = _SECONDS_LIMIT,
) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _FILES)), hard))
    store = ProfileStore(folder / "host" / "profiles")
    certificate_of(store)
    evil = {f"evil{number}": tokens_of(store).issue(f"evil{number}") for number in range(_EVIL)}
    (folder / "evil.json").write_text(json.dumps(evil))
    server, port = start_server(folder / "host")
    ended, attackers = threading.Event(), None
    senders = good_boards(store, port, boards, ended)
    try:
        for sender in senders[::2]:
            sender.start()
        while not all(sender.times for sender in senders[::2]):
            time.sleep(0.1)
        attackers = _start_attackers(port, clients, addresses, folder / "evil.json")
        before = _cpu_seconds(server.pid)
        earlier = {sender.name: len(sender.times) for sender in senders}
        for sender in senders[1::2]:
            sender.start()
        time.sleep(seconds)
        used = (_cpu_seconds(server.pid) - before) / seconds
        assert attackers.poll() is None, "the attackers gave up"
    finally:
        ended.set()
        for sender in senders:
            sender.join()
        if attackers is not None:
            attackers.kill()
            attackers.communicate()
        end_server(server)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    times = [t for sender in senders for t in sender.times[earlier[sender.name] :]]
    return _judge(folder, store, senders, times, limit, f"{used:.2f} of a core")


def _start_attackers(
    port: int, clients: int, addresses: int, tokens: Path
) -> subprocess.Popen[bytes]:
    arguments = [str(value) for value in (port, clients, addresses, tokens)]
    found = subprocess.Popen(
        [sys.executable, "-m", "tests.support.hostile", *arguments],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert found.stdout is not None and found.stdout.readline() == b"attacking\n"
    return found


def _judge(
    folder: Path,
    store: ProfileStore,
    senders: list[_Board],
    times: list[float],
    limit: float,
    used: str,
) -> int:
    sent = sum(len(sender.times) for sender in senders)
    failed = sum(sender.failed for sender in senders)
    sql = "SELECT count(*), count(DISTINCT (board, uuid)) FROM batches WHERE board LIKE 'good%'"
    there, distinct = map(int, query(store, sql, 1).rows[0])
    log = "".join(path.read_text() for path in (folder / "host" / "state").rglob("*.log"))
    traces = log.count("Traceback")
    print(
        f"{len(times)} requests of good boards: median {median(times):.3f} s, most "
        f"{max(times):.3f} s, {failed} times turned away; {sent - distinct} lost, "
        f"{there - distinct} doubled, {traces} tracebacks; the server used {used}"
    )
    good = there == distinct == sent and not traces and all(s.times for s in senders)
    return 0 if good and (limit == float("inf") or (not failed and max(times) <= limit)) else 1


def _cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--addresses", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--boards", type=int, default=20)
    parser.add_argument("--limit", type=float, default=_SECONDS_LIMIT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(
            Path(folder),
            options.clients,
            options.addresses,
            options.seconds,
            options.boards,
            options.limit,
        )


if __name__ == "__main__":
    sys.exit(main())

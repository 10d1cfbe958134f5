"""Measures how fast batches pass through NATS, and how fast one, two and four writers store them.

    python -m tests.long.write_rate [--batches 20000] [--operators 66] [--nodes 3] [--to FOLDER]

Threads of one process send batches, one per message, like boards that send every ten minutes; then
each number of writers stores as many. Reports wall-clock and CPU seconds. Exit code 1 if a row is
missing or duplicated.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

from edgekit.device.runtime.agent.batch import bodies
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.fleet.profiles import Bus, ProfileStore, SharedStore, enroll, query
from tests.support.nats_servers import running_nats
from tests.support.profile_batches import stream
from tests.support.profile_servers import post, start_edgekit, start_server

_THREADS = 32
_BOARDS = 1000
_WRITERS = (1, 2, 4)
_SENDERS = 16
_REQUESTS = 60  # per board: below the limit of consecutive requests


def fill(url: str, numbers: range, operators: int, replicas: int) -> None:
    """Publish batches, and print how long that took."""
    bus = Bus(url, replicas)
    made = [(f"b{n % _BOARDS}", list(bodies(stream(n, operators=operators)))) for n in numbers]
    share = iter(made)
    lock = threading.Lock()

    def send() -> None:
        while True:
            with lock:
                one = next(share, None)
            if one is None:
                return
            bus.publish(*one)

    begin, used = time.monotonic(), time.process_time()
    threads = [threading.Thread(target=send) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, used = time.monotonic() - begin, time.process_time() - used
    bus.close()
    print(
        f"handed over {len(made)} batches of {operators} operators: {len(made) / seconds:.0f} in a "
        f"second, {len(made) / used:.0f} in one of the processor's in that process",
        flush=True,
    )


def serve(url: str, folder: Path, operators: int, replicas: int) -> int:
    """Send batches to a server, one per request, and print its CPU time; return the total number of
    batches."""
    store = ProfileStore(folder / "profiles")
    boards = [f"board{i}" for i in range(_SENDERS)]
    tokens = [
        enroll(Device(LocalTransport(folder / b, b)), store, "localhost", 1).token for b in boards
    ]
    server, port = start_server(folder, "--nats", url, "--replicas", str(replicas))
    taken: list[bool] = []

    def send(sender: int) -> None:
        for number in range(sender * _REQUESTS, (sender + 1) * _REQUESTS):
            body = zlib.compress(stream(number, operators=operators), 1)
            taken.append(post(port, boards[sender], tokens[sender], body))

    begin = time.monotonic()
    threads = [threading.Thread(target=send, args=(i,)) for i in range(_SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    server.kill()
    usage = os.wait4(server.pid, 0)[2]
    used = usage.ru_utime + usage.ru_stime
    print(
        f"{sum(taken)} of {len(taken)} requests answered: {len(taken) / seconds:.0f} in a second, "
        f"{len(taken) / used:.0f} in one of the processor's of the server, its start included",
        flush=True,
    )
    assert all(taken)
    return len(taken)


def write(url: str, folder: Path, to: str, writers: int, replicas: int) -> tuple[float, float]:
    """Time `writers` draining the queue: wall-clock seconds, and their total CPU seconds."""
    begin = time.monotonic()
    arguments = ("fleet", "serve", "--nats", url, "--store", to, "--once")
    running = [
        start_edgekit(folder, *arguments, "--replicas", str(replicas)) for _ in range(writers)
    ]
    used = 0.0
    for process in running:
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0
        used += usage.ru_utime + usage.ru_stime
    return time.monotonic() - begin, used


def run(folder: Path, to: str, batches: int, operators: int, nodes: int) -> int:
    replicas = min(nodes, 3)
    with running_nats(folder / "nats", nodes) as nats:
        served = serve(nats.url, folder, operators, replicas)
        write(nats.url, folder, to, 1, replicas)
        for turn, writers in enumerate(_WRITERS):
            numbers = range(served + turn * batches, served + (turn + 1) * batches)
            fill(nats.url, numbers, operators, replicas)
            seconds, used = write(nats.url, folder, to, writers, replicas)
            print(
                f"{writers} writers: {batches / seconds:.0f} batches in a second, "
                f"{batches * operators / seconds:.0f} rows; {batches / used:.0f} batches in one "
                f"of the processor's; load {os.getloadavg()[0]:.0f}",
                flush=True,
            )
    store = SharedStore(to)
    size = sum(path.stat().st_size for path in Path(to).glob("parts/*/*/*.parquet"))
    sql = "SELECT count(*), count(DISTINCT uuid), count(*) FILTER (position = 0) FROM operators"
    rows, distinct, there = query(store, sql, 1).rows[0]
    made = served + batches * len(_WRITERS)
    print(f"{made} batches: {made - distinct} lost, {there - distinct} doubled, {size} bytes")
    return 0 if there == distinct == made and rows == made * operators else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20_000, help="for each count of writers")
    parser.add_argument("--operators", type=int, default=66)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--to", default="", help="of fleet serve; by default a folder here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        to = options.to or f"{folder}/shared"
        return run(Path(folder), to, options.batches, options.operators, options.nodes)


if __name__ == "__main__":
    sys.exit(main())

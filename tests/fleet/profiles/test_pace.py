"""Boards push profiles at a limited rate, and spread out after a server was away."""

from __future__ import annotations

import random
import threading
import time
import zlib
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.push import Bandwidth, LaterError, PushTarget, push
from edgekit.device.runtime.agent.retry import waits
from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore, query
from edgekit.host.fleet.profiles.admission import ConnectionLimits
from edgekit.host.fleet.profiles.server import tokens_of
from edgekit.host.fleet.profiles.store import StoredBatches
from tests.long.profile_clients import run as come_back
from tests.support.patience import AMPLE
from tests.support.profile_batches import batch, stream
from tests.support.profile_servers import enrolled, fill, post, running_server, serving
from tests.support.proxy import running_proxy

pytestmark = pytest.mark.slow

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
FAST = 1 << 30


class Clock:
    """A clock that advances only in `sleep`."""

    now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def test_64_kbit_per_second_are_kept_within_a_tenth(server: ProfileServer, tmp_path: Path) -> None:
    spool, home = enrolled(server, tmp_path)
    chance = random.Random(1)
    for number in range(10, 50):
        rows = tuple(
            row._replace(name=f"{chance.getrandbits(400):x}")
            for row in batch(number, operators=100).operators
        )
        spool.add(replace(batch(number), operators=rows))
    clock = Clock()
    bandwidth = Bandwidth(home.bits_per_second, clock, clock.sleep)
    with running_proxy(home.host, home.port) as proxy:
        push(spool, replace(home, port=proxy.port), bandwidth)
    bandwidth.take(0)
    assert proxy.up > 100_000
    assert 0.9 * 64_000 < proxy.up * 8 / (clock.now - Clock.now) < 1.1 * 64_000


class CostlyStore(ProfileStore):
    """A store in which the batches of some boards take processor time, then never end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seen: set[str] = set()
        self.let_go = threading.Event()

    def add(self, board: str, stream: bytes, most_batches: int = 1) -> StoredBatches:
        if board.startswith("evil"):
            until = time.thread_time() + 0.26
            while board not in self.seen and time.thread_time() < until:
                pass
            if board in self.seen:
                self.let_go.wait(AMPLE)
            self.seen.add(board)
        return super().add(board, stream, most_batches)


def test_boards_that_cost_much_do_not_delay_the_others(tmp_path: Path) -> None:
    store = CostlyStore(tmp_path)
    names = [*(f"evil{number}" for number in range(5)), "good"]
    tokens = {name: tokens_of(store).issue(name) for name in names}
    body = zlib.compress(stream(0, operators=1))
    with serving(ProfileServer(store, ("127.0.0.1", 0), clock=lambda: 1000.0)) as server:
        for name in names[:-1]:
            assert post(server.port, name, tokens[name], body)
        late = [
            threading.Thread(target=post, args=(server.port, name, tokens[name], body))
            for name in names[:-1]
        ]
        for thread in late:
            thread.start()
        while len(server._working) < len(late):
            time.sleep(0.01)
        assert post(server.port, "good", tokens["good"], body)
        assert len(server._working) == len(late)
        store.let_go.set()
        for thread in late:
            thread.join()


def test_a_thousand_boards_that_come_back_at_once_are_spread_and_all_served() -> None:
    """A recovered server that accepts ten boards per second and closes other connections."""
    boards = [random.Random(i) for i in range(1000)]
    tries: list[tuple[float, int, int]] = []
    for i, chance in enumerate(boards):
        heappush(tries, (waits(3, 0.0, 600.0, chance), i, 3))  # three failures so far
    busy: dict[int, int] = {}
    served = 0
    while tries:
        now, i, failures = heappop(tries)
        busy[int(now)] = busy.get(int(now), 0) + 1
        if busy[int(now)] <= 10:
            served += 1
        else:
            heappush(tries, (now + waits(failures + 1, 0.0, 600.0, boards[i]), i, failures + 1))
    assert served == 1000
    assert max(busy.values()) < 30
    assert max(busy) < 3600


def test_a_board_that_wakes_late_sends_no_less_and_never_much_more() -> None:
    """Sleeps of a busy board overrun, and some answers take long."""
    chance, clock = random.Random(1), Clock()
    bandwidth = Bandwidth(64_000, clock, lambda s: clock.sleep(s + chance.uniform(0, 0.15)))
    sent: list[tuple[float, int]] = []
    for number in range(3000):
        bandwidth.take(2158)
        sent.append((clock(), 2158))
        if number % 300 == 299:
            clock.sleep(20.0)  # lost time is not made up for
    seconds = clock() - Clock.now - 20.0 * 10
    assert 0.9 * 64_000 < sum(count for _, count in sent) * 8 / seconds < 1.1 * 64_000
    first = 0
    for last, (now, _) in enumerate(sent):
        while sent[first][0] < now - 10.0:
            first += 1
        assert sum(count for _, count in sent[first : last + 1]) * 8 < 1.1 * 640_000


@pytest.mark.exhaustive
def test_boards_that_come_back_at_once_are_all_served_by_a_real_server(tmp_path: Path) -> None:
    assert come_back(tmp_path, 80, speed=1000) == 0


def test_all_boards_are_served_though_few_at_a_time(tmp_path: Path) -> None:
    few = ConnectionLimits(waiting=2, boards=2)
    with running_server(ProfileStore(tmp_path / "store"), few) as server:
        serve_all(server, tmp_path)


def serve_all(server: ProfileServer, tmp_path: Path) -> None:
    boards = [enrolled(server, tmp_path, f"b{i}") for i in range(4)]
    for i, (spool, _) in enumerate(boards):
        fill(spool, 100 * (i + 1))

    def send(spool: Spool, home: PushTarget) -> None:
        for _ in range(10_000):
            try:
                push(spool, home, Bandwidth(FAST))
                return
            except LaterError:
                continue

    threads = [threading.Thread(target=send, args=board) for board in boards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(spool.fetch(1).data == b"" for spool, _ in boards)
    total = "SELECT count(*), count(DISTINCT (board, uuid)) FROM batches"
    assert query(server.store, total, 1).rows == ((24, 24),)

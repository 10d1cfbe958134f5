"""Distributed profile storage: through NATS to any number of writers, each row exactly once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.batch import batch_bytes
from edgekit.device.runtime.agent.push import Bandwidth, LaterError, push
from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.errors import IncompatibleError, InputError, TransferError, UnreachableError
from edgekit.host.fleet.profiles import (
    Bus,
    ProfileStore,
    ProfileWriter,
    SharedStore,
    WriterCounts,
    enroll,
    query,
)
from tests.long.kill_fleet_profiles import run as kill_all
from tests.long.result import result_line
from tests.support.nats_servers import PROGRAM, NatsServers, running_nats
from tests.support.profile_batches import SPOOL, batch, headed, stream
from tests.support.profile_servers import running_server

for library in ("pyarrow", "duckdb", "nats"):
    pytest.importorskip(library)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason="no nats-server for this machine"),
]
FAST = 1 << 30


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    with running_nats(tmp_path_factory.mktemp("nats")) as found:
        yield found


@pytest.fixture
def bus(servers: NatsServers) -> Iterator[Bus]:
    """A connection to a new stream."""
    found = Bus(servers.url, 1)
    yield found
    found.close()
    remove_stream(servers)


def remove_stream(servers: NatsServers) -> None:
    async def work(streams: Any) -> None:
        for name in ("EDGEKIT_PROFILES", "KV_EDGEKIT_PROFILES"):
            await streams.delete_stream(name)

    servers.manage(work)


@pytest.fixture
def home(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "home")


@pytest.fixture
def shared(tmp_path: Path) -> SharedStore:
    return SharedStore(str(tmp_path / "shared"))


def write(bus: Bus, store: SharedStore, lease: float = 0.0) -> WriterCounts:
    """Lets one writer process all waiting batches."""
    trouble: list[str] = []
    writer = ProfileWriter(bus, store, 0.0, lease)
    return writer.run(threading.Event(), True, trouble.append)


def uuids(store: SharedStore) -> list[int]:
    return [int(row[0], 16) for row in query(store, "SELECT uuid FROM batches ORDER BY 1", 99).rows]


def test_what_servers_hand_over_is_written_in_the_layout_of_the_store(
    bus: Bus, home: ProfileStore, shared: SharedStore
) -> None:
    assert home.hand_over("x", stream(1, 2), bus).new == 2
    home.hand_over("y", stream(3, profile="rv64gcv"), bus)
    written = write(bus, shared)
    assert (written.batches, written.rows, written.known, written.refused) == (3, 6, 0, 0)
    assert bus.waiting() == {}
    assert uuids(shared) == [1, 2, 3]
    types = {path.partition("/")[0] for path in shared.parts()}
    assert types == {"board_type=a57", "board_type=rv64gcv"}
    assert [(b.board, b.profile, b.batches) for b in shared.boards()] == [
        ("x", "a57", 2),
        ("y", "rv64gcv", 1),
    ]
    assert list(home.folder.glob("parts/*/*/*")) == []


def test_rows_are_those_that_one_host_would_have_kept(
    bus: Bus, home: ProfileStore, shared: SharedStore, tmp_path: Path
) -> None:
    alone = ProfileStore(tmp_path / "alone")
    alone.add("x", stream(1, 2))
    home.hand_over("x", stream(1, 2), bus)
    write(bus, shared)
    sql = "SELECT * EXCLUDE received FROM operators ORDER BY uuid, position"
    assert query(shared, sql, 9) == query(alone, sql, 9)


def test_a_batch_that_comes_again_is_written_once(
    bus: Bus, home: ProfileStore, shared: SharedStore
) -> None:
    home.hand_over("x", stream(1), bus)
    home.hand_over("x", stream(1, 2), bus)
    assert write(bus, shared).known == 1
    home.hand_over("x", stream(2, 3), bus)
    assert (write(bus, shared).batches, uuids(shared)) == (1, [1, 2, 3])


def test_a_batch_is_known_though_its_stream_was_made_anew(
    bus: Bus, servers: NatsServers, home: ProfileStore, shared: SharedStore
) -> None:
    home.hand_over("x", stream(1), bus)
    write(bus, shared)
    remove_stream(servers)
    again = Bus(servers.url, 1)
    assert again.id != bus.id
    home.hand_over("x", stream(1, 2), again)
    assert (write(again, shared).known, uuids(shared)) == (1, [1, 2])
    again.close()


class _Dying(SharedStore):
    """A store whose writer dies before or after its next file of rows."""

    def __init__(self, where: str, after: bool) -> None:
        super().__init__(where)
        self._after = after

    def write(self, path: str, table: Any) -> None:
        if self._after:
            super().write(path, table)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True], ids=["before its file", "after its file"])
def test_what_a_dead_writer_began_another_ends(
    bus: Bus, home: ProfileStore, shared: SharedStore, after: bool
) -> None:
    home.hand_over("x", stream(1, 2), bus)
    with pytest.raises(KeyboardInterrupt):
        write(bus, _Dying(shared.folder, after))
    home.hand_over("x", stream(2, 3), bus)
    assert write(bus, shared).batches == 3
    assert uuids(shared) == [1, 2, 3]


def test_a_plan_of_a_writer_that_lives_is_left_to_it(
    bus: Bus, home: ProfileStore, shared: SharedStore
) -> None:
    home.hand_over("x", stream(1), bus)
    with pytest.raises(KeyboardInterrupt):
        write(bus, _Dying(shared.folder, True))
    writer = ProfileWriter(bus, shared, 0.0, lease=1000.0)
    assert not writer.round(now=True)
    assert writer.written == WriterCounts()


class _Slow(SharedStore):
    """A store in which another writer does all the work before this writer executes its plan."""

    def __init__(self, where: str, bus: Bus) -> None:
        super().__init__(where)
        self._bus: Bus | None = bus

    def write(self, path: str, table: Any) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            write(bus, SharedStore(self.folder))
        super().write(path, table)


def test_a_writer_that_was_thought_dead_does_no_harm(
    bus: Bus, home: ProfileStore, shared: SharedStore
) -> None:
    home.hand_over("x", stream(1, 2), bus)
    assert write(bus, _Slow(shared.folder, bus)).batches == 0
    assert uuids(shared) == [1, 2]


def test_many_writers_at_once_write_each_batch_once(
    bus: Bus, servers: NatsServers, home: ProfileStore, shared: SharedStore
) -> None:
    for number in range(60):
        home.hand_over(f"x{number % 20}", stream(number), bus)
    others = [Bus(servers.url, 1) for _ in range(3)]
    threads = [threading.Thread(target=write, args=(one, shared, 20.0)) for one in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in others:
        one.close()
    assert uuids(shared) == list(range(60))


def test_what_cannot_be_read_is_kept_by_the_server_and_not_handed_over(
    bus: Bus, home: ProfileStore, shared: SharedStore
) -> None:
    newer = headed(b'{"schema":"edgekit.profile.batch/9"}')
    found = home.hand_over("x", newer + stream(1), bus)
    assert (found.new, len(found.refused)) == (1, 1)
    assert len(list((home.folder / "refused").glob("*/*.batch"))) == 1
    write(bus, shared)
    assert uuids(shared) == [1]


def test_a_writer_older_than_the_server_keeps_what_it_cannot_read(
    bus: Bus, home: ProfileStore, shared: SharedStore
) -> None:
    bus.publish("x", [b'{"schema":"edgekit.profile.batch/9"}'])
    assert write(bus, shared).refused == 1
    (why,) = Path(shared.folder).glob("refused/*.txt")
    assert "x: profile batch: expected edgekit.profile.batch/1, found" in why.read_text()


def test_large_batches_travel_in_several_messages(
    bus: Bus, home: ProfileStore, shared: SharedStore
) -> None:
    many = b"".join(batch_bytes(batch(n, 5000), SPOOL, n, 0, 0) for n in range(12))
    home.hand_over("x", many, bus)
    assert sum(bus.waiting().values()) > 1
    assert write(bus, shared).rows == 60_000


def test_a_board_sends_through_nats_and_keeps_what_nats_did_not_take(
    tmp_path: Path, home: ProfileStore, shared: SharedStore
) -> None:
    with running_nats(tmp_path / "nats") as nats:
        bus = Bus(nats.url, 1, patience_seconds=1.0)
        with running_server(home, bus=bus) as server:
            place = enroll(
                Board(LocalTransport(tmp_path / "x", "x")), home, "127.0.0.1", server.port
            )
            spool = Spool(tmp_path / "x" / "spool")
            spool.add(batch(1))
            assert push(spool, place, Bandwidth(FAST)) > 500
            spool.add(batch(2))
            nats.kill(0)
            with pytest.raises(LaterError, match="507"):
                push(spool, place, Bandwidth(FAST))
            nats.start(0)
            assert push(spool, place, Bandwidth(FAST)) > 500
            assert spool.fetch(1).data == b""
        write(bus, shared)
        bus.close()
    assert uuids(shared) == [1, 2]


def test_servers_that_do_not_answer_are_named() -> None:
    with pytest.raises(
        UnreachableError, match=r"^nats://127.0.0.1:1: expected a NATS server, found none"
    ):
        Bus("nats://me:secret@127.0.0.1:1", connect_seconds=1.0)


def test_a_server_without_a_port_is_named_with_the_usual_one() -> None:
    with pytest.raises(UnreachableError, match=r"^nats://255.255.255.255:4222: "):
        Bus("nats://255.255.255.255", connect_seconds=0.2)  # no address of a machine


@pytest.mark.parametrize("url", ["", "localhost:4222", "http://x", "nats://", "nats://x:y"])
def test_an_invalid_url_is_named(url: str) -> None:
    with pytest.raises(InputError, match="--nats: expected nats://HOST:PORT"):
        Bus(url)


def test_too_few_servers_and_too_few_replicas_are_named(servers: NatsServers, bus: Bus) -> None:
    with pytest.raises(IncompatibleError, match="in 3 replicas on disk, found 1 in file"):
        Bus(servers.url)
    remove_stream(servers)
    with pytest.raises(IncompatibleError, match="keeps 3 copies of each batch, found: replicas"):
        Bus(servers.url)
    Bus(servers.url, 1).close()


def test_a_full_stream_takes_nothing_and_loses_nothing(
    tmp_path: Path, home: ProfileStore, shared: SharedStore
) -> None:
    with running_nats(tmp_path / "nats") as nats:
        bus = Bus(nats.url, 1)

        async def bound(streams: Any) -> None:
            config = (await streams.stream_info("EDGEKIT_PROFILES")).config
            await streams.update_stream(replace(config, max_bytes=2000))

        nats.manage(bound)
        taken = 0
        with pytest.raises(UnreachableError, match="found: no room: maximum bytes exceeded"):
            for number in range(100):
                home.hand_over("x", stream(number), bus)
                taken += 1
        assert write(bus, shared).batches == taken > 1
        home.hand_over("x", stream(taken), bus)
        write(bus, shared)
        bus.close()
    assert uuids(shared) == list(range(taken + 1))


def test_a_full_disk_is_named_and_what_waits_is_written_later(
    bus: Bus, home: ProfileStore, shared: SharedStore
) -> None:
    home.hand_over("x", stream(1), bus)
    shared.make()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(TransferError, match=r"parquet: expected .* found: No space left"):
        write(bus, SharedStore(shared.folder, full))
    assert sum(bus.waiting().values()) == 1
    assert (write(bus, shared).batches, uuids(shared)) == (1, [1])


def test_a_writer_goes_on_after_trouble(bus: Bus, home: ProfileStore, shared: SharedStore) -> None:
    home.hand_over("x", stream(1), bus)
    stopped, shown = threading.Event(), list[str]()

    class Troubled(SharedStore):
        def write(self, path: str, table: Any) -> None:
            if not shown:
                raise TransferError("the bucket refuses")
            super().write(path, table)
            stopped.set()

    writer = ProfileWriter(bus, Troubled(shared.folder), 0.0)
    writer.run(stopped, False, shown.append)
    assert shown == ["the bucket refuses; trying again in 1 s"]
    assert uuids(shared) == [1]


def test_a_folder_that_is_no_shared_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a store of edgekit fleet serve"):
        query(SharedStore(str(tmp_path)), "FROM batches", 1)
    with pytest.raises(InputError, match="expected a folder or s3://BUCKET/FOLDER, found 'gs://x'"):
        SharedStore("gs://x")


@pytest.mark.exhaustive
def test_nothing_is_lost_or_doubled_whatever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kill_all(tmp_path, batches=6000, seconds=4.0, seed=1, writers=2, every="2s") == 0
    assert (result_line(capsys.readouterr().out) or "").startswith("6000 batches in ")

"""Profiles in a bucket, written and queried over S3 on a real object store (OpenStack Swift)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.host.errors import InputError, TransferError
from edgekit.host.fleet.profiles import (
    Bus,
    ProfileStore,
    ProfileWriter,
    SharedStore,
    compare,
    export,
    query,
)
from tests.support.nats_servers import PROGRAM, running_nats
from tests.support.profile_batches import stream
from tests.support.swift import KEYS, READER, Swift, running_swift

for library in ("pyarrow", "duckdb", "nats"):
    pytest.importorskip(library)
pytestmark = [
    pytest.mark.swift,
    pytest.mark.skipif(not PROGRAM.exists(), reason="no nats-server for this machine"),
]


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    with running_swift(tmp_path_factory.mktemp("swift")) as found:
        found.make_bucket("fleet")
        yield found


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    with running_nats(tmp_path / "nats") as servers:
        found = Bus(servers.url, 1)
        yield found
        found.close()


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    use_keys(monkeypatch, KEYS)


def use_keys(monkeypatch: pytest.MonkeyPatch, keys: tuple[str, str]) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys[1])
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def write(bus: Bus, store: SharedStore) -> int:
    writer = ProfileWriter(bus, store, 0.0, lease=0.0)
    return writer.run(threading.Event(), True, lambda _: None).batches


def numbers(store: SharedStore) -> list[int]:
    return [int(row[0], 16) for row in query(store, "SELECT uuid FROM batches ORDER BY 1", 99).rows]


@pytest.mark.exhaustive
def test_a_bucket_is_written_and_asked_as_a_folder_is(
    swift: Swift, bus: Bus, tmp_path: Path
) -> None:
    home, store = ProfileStore(tmp_path / "home"), SharedStore(swift.store("fleet"))
    home.hand_over("x", stream(*range(1, 9)), bus)
    assert write(bus, store) == 8
    home.hand_over("x", stream(8, 9), bus)
    assert write(bus, SharedStore(swift.store("fleet"))) == 1
    assert numbers(store) == list(range(1, 10))
    sql = "SELECT board, name, median(median_ns) FROM operators GROUP BY ALL ORDER BY name"
    assert query(store, sql, 9).rows == (("x", "op0", 5.0), ("x", "op1", 5.0))
    assert [(b.board, b.batches) for b in store.boards()] == [("x", 9)]
    assert export(store, tmp_path / "rows.csv") == 18
    with pytest.raises(InputError, match="expected the start of one release's id, found none"):
        compare(store, "abcd", "ef01")


@pytest.mark.exhaustive
def test_a_bucket_that_refuses_is_named_and_nothing_is_lost(
    swift: Swift, bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swift.make_bucket("closed")
    home = ProfileStore(tmp_path / "home")
    home.hand_over("x", stream(1), bus)
    for bucket, keys, found in (
        ("closed", READER, "403, access denied: the keys may not do that"),
        ("closed", (KEYS[0], "wrong"), "403, wrong secret key"),
        ("missing", KEYS, "404, no such bucket"),
    ):
        use_keys(monkeypatch, keys)
        with pytest.raises(TransferError, match=f"^s3://{bucket}/profiles.*found: {found}; fix"):
            write(bus, SharedStore(swift.store(bucket)))
    use_keys(monkeypatch, KEYS)
    store = SharedStore(swift.store("closed"))
    store.make()
    swift.stop("object")
    swift.start("object", reserve="100%")
    with pytest.raises(TransferError, match="found: 503, it accepts nothing now: it is full or"):
        write(bus, store)
    swift.stop("object")
    swift.start("object")
    assert (write(bus, store), numbers(store)) == (1, [1])
    swift.stop("proxy")
    with pytest.raises(TransferError, match="found: the server does not answer"):
        numbers(store)
    swift.start("proxy")
    assert numbers(store) == [1]

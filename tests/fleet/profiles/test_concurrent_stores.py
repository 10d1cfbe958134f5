"""Streams that arrive together, and compaction beside them."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.common.files import take_lock
from edgekit.host.errors import TransferError
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore, query
from edgekit.host.fleet.profiles.catalog import ParquetPart
from edgekit.host.fleet.profiles.parquet import write_part
from tests.support.patience import AMPLE, PATIENCE, until
from tests.support.profile_batches import stream

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


def boards_and_batches(store: ProfileStore) -> list[tuple[object, ...]]:
    sql = "SELECT board, count(*), count(DISTINCT uuid) FROM batches GROUP BY 1 ORDER BY 1"
    return list(query(store, sql, 99).rows)


class Writes:
    """Counts the files that are written, and calls `before` before each."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.count, self._before = 0, before

    def __call__(self, folder: Path, profile: str, date: str, tables: Iterable[Any]) -> ParquetPart:
        self.count += 1
        self._before()
        return write_part(folder, profile, date, tables)


def test_streams_that_wait_for_a_write_are_stored_by_one(tmp_path: Path) -> None:
    is_writing, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        is_writing.set()
        assert may_end.wait(PATIENCE)

    writes = Writes(hold)
    store = ProfileStore(tmp_path / "store", write=writes)
    found: dict[int, int] = {}

    def add(number: int) -> None:
        found[number] = store.add(f"board{number // 2}", stream(number, 99)).new

    first, *others = threads = [threading.Thread(target=add, args=(n,)) for n in range(12)]
    first.start()
    assert is_writing.wait(PATIENCE)
    for thread in others:
        thread.start()
    until(lambda: store._commits._asked.qsize() == len(others))
    may_end.set()
    for thread in threads:
        thread.join()
    assert writes.count == 2
    assert sorted(found.values()) == 6 * [1] + 6 * [2]
    assert boards_and_batches(store) == [(f"board{number}", 3, 3) for number in range(6)]


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is due to merge files."""
    store = ProfileStore(tmp_path_factory.mktemp("small") / "store")
    for number in range(17):
        store.add("x", stream(number, operators=1))
    return store.folder


@pytest.fixture
def folder(small_files: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_files, tmp_path / "store"))


def is_merging() -> bool:
    return threading.current_thread().name.startswith("merging")


def test_boards_are_served_while_files_are_merged(folder: Path) -> None:
    def store_another() -> None:
        os.close(take_lock(folder / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB))
        ProfileStore(folder).add("y", stream(1))

    assert ProfileStore(folder, write=Writes(store_another)).compact() == 17
    assert boards_and_batches(ProfileStore(folder)) == [("x", 17, 17), ("y", 1, 1)]
    assert len(list(folder.rglob("*.parquet"))) == 2


def test_files_that_are_deleted_while_they_are_merged_stay_deleted(folder: Path) -> None:
    def forget() -> None:
        os.close(take_lock(folder / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB))
        ProfileStore(folder).forget(most_bytes=1)

    assert ProfileStore(folder, write=Writes(forget)).compact() == 0
    assert boards_and_batches(ProfileStore(folder)) == []
    assert list(folder.rglob("*.parquet")) == []


def test_no_request_of_a_board_merges_files(folder: Path) -> None:
    go_on = threading.Event()
    store = ProfileStore(folder, write=Writes(lambda: is_merging() and go_on.wait(AMPLE)))
    with ProfileServer(store, ("127.0.0.1", 0), compact_every=1) as server:
        assert server.store_stream("x", stream(50)).new == 1
        assert server.store_stream("x", stream(51)).new == 1
        go_on.set()
    assert boards_and_batches(store) == [("x", 19, 19)]
    assert len(list(folder.rglob("*.parquet"))) < 4


def test_a_stream_of_many_board_types_is_refused(tmp_path: Path) -> None:
    """Each is a file, for which other boards wait."""
    store = ProfileStore(tmp_path / "store")
    with pytest.raises(TransferError, match="board 'x': expected at most 8 board types, found 9"):
        store.add("x", b"".join(stream(n, profile=f"type{n}") for n in range(9)))
    assert boards_and_batches(store) == []

"""The store of field profiles: batches delivered at least once are stored exactly once."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.batch import bodies
from edgekit.host.common.files import locked
from edgekit.host.errors import InputError, TransferError
from edgekit.host.fleet.profiles import ProfileStore, export, query, upload
from edgekit.host.fleet.profiles.parquet import write_part
from edgekit.host.fleet.profiles.refused import StorageLimits, keep_refused
from edgekit.host.fleet.profiles.server import certificate_of, tokens_of
from tests.support.profile_batches import headed, stream

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "profiles", lambda: 1000 * DAY)


def uuids(store: ProfileStore) -> list[int]:
    answer = query(store, "SELECT uuid FROM batches ORDER BY uuid", 100_000)
    return [int(row[0], 16) for row in answer.rows]


def test_a_batch_sent_twice_is_stored_once(store: ProfileStore) -> None:
    first = store.add("bench-1", stream(1, 2, 2))
    assert (first.new, first.known, first.rows) == (2, 1, 4)
    again = store.add("bench-1", stream(2, 3))
    assert (again.new, again.known) == (1, 1)
    assert uuids(store) == [1, 2, 3]
    (board,) = store.boards()
    assert (board.board, board.profile, board.batches, board.releases) == ("bench-1", "a57", 3, 1)


def test_an_empty_store_answers(store: ProfileStore) -> None:
    assert query(store, "SELECT count(*) FROM operators", 10).rows == ((0,),)
    assert store.boards() == []


def test_rows_are_partitioned_by_board_type_and_day_of_arrival(store: ProfileStore) -> None:
    store.add("x", stream(1))
    store.add("y", stream(2, profile="rv64gcv"))
    paths = sorted(p.parent for p in (store.folder / "parts").rglob("*.parquet"))
    assert [str(p.relative_to(store.folder / "parts")) for p in paths] == [
        "board_type=a57/date=1972-09-27",
        "board_type=rv64gcv/date=1972-09-27",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:20],
        lambda data: data.replace(b"tiny", b"tinx"),
        lambda data: data + b"x",
        lambda data: b"EKP1 99999999 " + b"0" * 64 + b"\n",
    ],
)
def test_a_damaged_stream_is_named_and_nothing_of_it_stored(
    store: ProfileStore, damage: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(
        TransferError, match=r"board 'x': profile batch: expected .* fetch it again"
    ):
        store.add("x", damage(stream(1, 2)))
    assert uuids(store) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"batch/1", b"batch/9", "expected edgekit.profile.batch/1, found edgekit.profile.batch/9"),
        (b'"lost":0', b'"lost":-1', "does not fit"),
        (b'"lost":0', b'"lost":0,"input":"secret"', "does not fit"),
        (b'"profile":"a57"', b'"profile":"../../x"', "does not fit"),
        (b'"op0"', b'"op\\u001b"', "expected printable text"),
    ],
)
def test_what_does_not_decode_is_kept_aside_and_the_others_are_stored(
    store: ProfileStore, old: bytes, new: bytes, why: str
) -> None:
    body = stream(1).partition(b"\n")[2].replace(old, new)
    found = store.add("x", headed(body) + stream(2))
    assert found.new == 1
    assert why in found.refused[0]
    kept = list((store.folder / "refused" / "x").glob("*.batch"))
    assert [path.read_bytes() for path in kept] == [headed(body)]
    assert uuids(store) == [2]


def test_a_full_disk_stores_nothing_and_the_next_time_all(store: ProfileStore) -> None:
    store.add("x", stream(1))
    for at in range(1, 5):
        left = [at]

        def sync(descriptor: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")

        write = functools.partial(write_part, sync=sync)
        full = ProfileStore(store.folder, lambda: 1000 * DAY, write)
        with pytest.raises(OSError, match="No space"):
            full.add("x", stream(10 + at))
        assert uuids(store) == [1]
    store.add("x", stream(11))
    assert uuids(store) == [1, 11]
    assert len(list((store.folder / "parts").rglob("*.parquet"))) == 2


def changes_of(work: Callable[[], object]) -> int:
    """The file-system calls of `work`, in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        count = [0]

        def counting(real: Callable[..., object]) -> Callable[..., object]:
            def call(*args: object, **options: object) -> object:
                count[0] += 1
                return real(*args, **options)

            return call

        for name in ("fsync", "replace", "unlink", "mkdir", "open"):
            setattr(os, name, counting(getattr(os, name)))
        work()
        os.write(writer, b"%d" % count[0])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        found = int(answer.read())
    os.waitpid(child, 0)
    return found


def kill_before(change: int) -> None:
    """Kills this process before its `change`-th file-system call from now on."""
    left = [change]

    def killing(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    for name in ("fsync", "replace", "unlink", "mkdir", "open"):
        setattr(os, name, killing(getattr(os, name)))


@pytest.mark.slow
def test_killed_at_any_moment_each_batch_is_there_once(store: ProfileStore) -> None:
    """Each process is killed before its k-th change; unacknowledged batches are sent again."""
    for k in range(1, 60):
        child = os.fork()
        if child == 0:
            kill_before(k)
            write = functools.partial(write_part, sync=os.fsync)  # which now kills
            dying = ProfileStore(store.folder, lambda: 1000 * DAY, write)
            dying.add("x", stream(*range(1, k + 1)))
            os._exit(0)
        code = os.waitpid(child, 0)[1]
        if code == 0:
            break
        next_one = ProfileStore(store.folder, lambda: 1000 * DAY)
        next_one.add("x", stream(*range(1, k + 1)))
        assert uuids(store) == list(range(1, k + 1)), k
    assert k > 5
    assert not list((store.folder / "parts").rglob(".*"))


def test_many_small_files_become_one_and_answers_stay(store: ProfileStore) -> None:
    for i in range(20):
        store.add("x", stream(i))
    assert store.compact() == 20
    assert uuids(store) == list(range(20))
    assert len(list((store.folder / "parts").rglob("*.parquet"))) == 1
    assert store.add("x", stream(5)).known == 1


def test_removed_profiles_do_not_return(tmp_path: Path) -> None:
    today = [1000.0]
    store = ProfileStore(tmp_path / "profiles", lambda: today[0] * DAY)
    store.add("x", stream(1))
    today[0] += 50
    store.add("x", stream(2))
    assert store.forget(30) == (1, 2)
    assert uuids(store) == [2]
    assert store.add("x", stream(1)).known == 1
    assert uuids(store) == [2]


def test_a_file_that_was_damaged_later_is_named(store: ProfileStore) -> None:
    store.add("x", stream(1))
    (part,) = (store.folder / "parts").rglob("*.parquet")
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(TransferError, match=f"{part.name}: expected .* restore it"):
        uuids(store)


def test_a_query_reads_the_store_and_no_other_file(store: ProfileStore, tmp_path: Path) -> None:
    store.add("x", stream(1, 3))
    found = query(store, "SELECT name, median(median_ns) m FROM operators GROUP BY 1 ORDER BY 1", 9)
    assert found.columns == ("name", "m")
    assert found.rows == (("op0", 2.0), ("op1", 2.0))
    assert query(store, "FROM operators", 3).more
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for sql in (f"FROM read_csv('{secret}')", f"COPY operators TO '{tmp_path}/out.csv'", "SELEC"):
        with pytest.raises(InputError, match="expected one SELECT over the views"):
            query(store, sql, 3)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_an_export_has_all_rows(store: ProfileStore, tmp_path: Path, suffix: str) -> None:
    store.add("x", stream(1, 2, 3))
    assert export(store, tmp_path / f"out{suffix}") == 6
    assert (tmp_path / f"out{suffix}").stat().st_size > 100
    with pytest.raises(InputError, match="expected a name that ends in"):
        export(store, tmp_path / "out.xlsx")


def test_of_too_many_bytes_the_oldest_go_and_do_not_come_back(tmp_path: Path) -> None:
    day = [1000 * DAY]
    store = ProfileStore(tmp_path / "profiles", lambda: day[0])
    for number in (1, 2, 3):
        store.add("x", stream(number))
        day[0] += DAY
    sizes = [p.stat().st_size for p in sorted((store.folder / "parts").rglob("*.parquet"))]
    assert store.forget(most_bytes=sum(sizes)) == (0, 0)
    assert store.forget(most_bytes=sum(sizes) - 1) == (1, 2)
    assert uuids(store) == [2, 3]
    assert store.add("x", stream(1)).known == 1
    assert store.forget(days=1, most_bytes=1) == (2, 4)
    assert uuids(store) == []


def refuse(folder: Path, board: str, number: int, limits: StorageLimits | None = None) -> None:
    body = b'{"schema": "edgekit.profile/%d"}' % number
    keep_refused(folder, board, [(body, "does not fit")], limits or StorageLimits())
    for path in (folder / board).glob("*.batch"):
        if path.read_bytes() == headed(body):
            os.utime(path, (number, number))  # ages, in an order that no clock blurs


def refused(folder: Path) -> list[tuple[str, bytes]]:
    """The refused bodies, by board."""
    found = [(path.parent.name, path.read_bytes()) for path in folder.glob("*/*.batch")]
    return sorted((board, body) for board, data in found for body in bodies(data))


def test_refused_batches_of_a_board_are_bounded_and_the_newest_stay(tmp_path: Path) -> None:
    for number in range(10, 16):
        refuse(tmp_path, "x", number, StorageLimits(board_files=3))
        refuse(tmp_path, "y", 10, StorageLimits(board_files=3))
    schemas = [(board, body[-4:-2]) for board, body in refused(tmp_path)]
    assert schemas == [("x", b"13"), ("x", b"14"), ("x", b"15"), ("y", b"10")]
    assert len(list(tmp_path.glob("*/*.txt"))) == 4
    refuse(tmp_path, "x", 16, StorageLimits(board_bytes=1))
    assert [board for board, _ in refused(tmp_path)] == ["y"]
    refuse(tmp_path, "z", 17, StorageLimits(files=1))
    assert [board for board, _ in refused(tmp_path)] == ["z"]
    refuse(tmp_path, "z", 18, StorageLimits(bytes=1))
    assert refused(tmp_path) == []


def test_a_refused_body_is_kept_once_however_often_and_however_grouped_it_comes(
    store: ProfileStore,
) -> None:
    odd = [headed(b"%d" % number) for number in range(3)]
    for come in (500 * [odd[0]], odd[:1], odd[:2], odd, odd[::-1]):
        assert len(store.add("x", b"".join(come)).refused) == len(come)
    assert refused(store.folder / "refused") == [("x", b"0"), ("x", b"1"), ("x", b"2")]
    assert len(list((store.folder / "refused" / "x").iterdir())) == 6


def test_refused_batches_are_a_spool_that_a_newer_edgekit_stores(store: ProfileStore) -> None:
    body = stream(7).partition(b"\n")[2]
    keep_refused(store.folder / "refused", "x", [(body, "too new")])
    found, damaged = upload(store, "x", store.folder / "refused" / "x")
    assert (found.new, damaged) == (1, ())


def test_five_hundred_undecodable_batches_cost_a_few_file_operations(store: ProfileStore) -> None:
    """And all of them outside the lock of the store, which other boards wait for."""
    (store.folder / "refused").mkdir(parents=True)
    with locked(store.folder / "lock"):
        odd = [(b"%d" % number, "") for number in range(500)]
        counted = changes_of(lambda: keep_refused(store.folder / "refused", "x", odd))
    assert counted < 20


def test_a_stream_of_too_many_batches_is_refused(store: ProfileStore) -> None:
    with pytest.raises(TransferError, match="at most 2 batches, found more"):
        store.add("x", stream(1, 2, 3), most_batches=2)
    assert uuids(store) == []


def test_a_board_that_knows_the_uuid_of_another_does_not_suppress_its_batch(
    store: ProfileStore,
) -> None:
    assert store.add("evil", stream(1, 2)).new == 2
    found = store.add("good", stream(1, 2, 3))
    assert (found.new, found.known, found.rows) == (3, 0, 6)
    assert store.add("good", stream(2, 4, operators=5)).rows == 5
    answer = query(store, "SELECT board, count(*) FROM operators GROUP BY 1 ORDER BY 1", 9)
    assert answer.rows == (("evil", 4), ("good", 11))
    assert [board.batches for board in store.boards()] == [2, 4]


def test_a_store_of_another_edgekit_is_refused(store: ProfileStore) -> None:
    store.add("x", stream(1))
    with contextlib.closing(sqlite3.connect(store.folder / "catalog.sqlite")) as database:
        database.execute("PRAGMA user_version = 1")
    with pytest.raises(InputError, match="expected a catalog of version 2, found 1; move the"):
        store.add("x", stream(2))


def test_only_its_owner_enters_the_store(tmp_path: Path) -> None:
    for make in (
        lambda store: store.add("x", stream(1)),
        lambda store: store.boards(),
        lambda store: tokens_of(store).issue("x"),
        certificate_of,
    ):
        store = ProfileStore(tmp_path / f"{id(make)}" / "profiles")
        make(store)
        assert store.folder.stat().st_mode & 0o777 == 0o700
    store.folder.chmod(0o755)  # too open
    store.add("x", stream(1))
    assert store.folder.stat().st_mode & 0o777 == 0o700

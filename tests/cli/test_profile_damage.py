"""`edgekit profile` with damaged batches, store or disk: a one-line error and no data loss."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.common.paths import data_folder
from edgekit.host.fleet.profiles import ProfileStore
from tests.support.profile_batches import batch, headed, stream

pytestmark = pytest.mark.slow

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

_ASKED = (
    ("profile", "list", "SELECT sum(median_ns), max(name), max(kernel) FROM operators"),
    ("profile", "report", "-o", "report.html"),
    ("profile", "list", "-o", "rows.csv"),
    ("profile", "compare", "00", "01"),
)


def _flipped(data: bytes) -> bytes:
    """`data` with one bit flipped in every byte of the middle third."""
    third = len(data) // 3
    return data[:third] + bytes(byte ^ 0x40 for byte in data[third:-third]) + data[-third:]


def _body(number: int) -> bytes:
    return stream(number).partition(b"\n")[2]


_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "flipped": _flipped,
    "nonsense": lambda data: b"\0" * len(data),
    "no end": lambda data: data[:-8] + b"\0" * 8,
}


@pytest.mark.parametrize("damage", _DAMAGES.values(), ids=_DAMAGES)
def test_a_batch_that_is_damaged_on_a_card_is_named_and_the_others_are_stored(
    edgekit: Any, home: Path, damage: Callable[[bytes], bytes]
) -> None:
    spool = Spool(home / "card")
    for number in (1, 2, 3):
        spool.add(batch(number))
    bad = sorted(spool.folder.glob("*.batch"))[1]
    whole = bad.read_bytes()
    bad.write_bytes(damage(whole))
    done = edgekit("profile", "pull", "--spool", "card", "--board", "far")
    assert (done.code, "found 1 damaged files" in done.err) == (6, True)
    assert "Traceback" not in done.err
    assert _uuids(edgekit) == [1, 3]
    bad.write_bytes(whole)
    assert edgekit("profile", "pull", "--spool", "card", "--board", "far").code == 0
    assert _uuids(edgekit) == [1, 2, 3]


def test_a_batch_of_a_newer_edgekit_is_kept_aside_and_named(edgekit: Any, home: Path) -> None:
    (home / "card").mkdir()
    newer = _body(2).replace(b"batch/1", b"batch/7")
    for number, data in enumerate((stream(1), headed(newer), stream(3))):
        (home / "card" / f"{number:012}-{number:032x}.batch").write_bytes(data)
    done = edgekit("profile", "pull", "--spool", "card", "--board", "far")
    assert done.code == 0
    assert "expected edgekit.profile.batch/1, found edgekit.profile.batch/7" in done.err
    assert _uuids(edgekit) == [1, 3]
    (kept,) = (data_folder() / "profiles" / "refused").glob("*/*.batch")
    assert kept.read_bytes() == headed(newer)


@pytest.mark.parametrize("damage", _DAMAGES.values(), ids=_DAMAGES)
def test_a_file_of_the_store_that_is_damaged_is_named_by_all_that_ask_it(
    edgekit: Any, damage: Callable[[bytes], bytes]
) -> None:
    store = ProfileStore()
    store.add("far", stream(*range(200), operators=30))
    (part,) = (store.folder / "parts").rglob("*.parquet")
    whole = part.read_bytes()
    part.write_bytes(damage(whole))
    for arguments in _ASKED:
        done = edgekit(*arguments)
        assert (done.code, part.name in done.complaint) == (6, True), arguments
    assert not Path("report.html").exists()
    assert store.add("near", stream(777)).new == 1  # new batches are still stored
    part.write_bytes(whole)
    assert _uuids(edgekit) == [*range(200), 777]


def test_damaged_files_stay_as_they_are_where_many_become_one(edgekit: Any, home: Path) -> None:
    store = ProfileStore()
    for number in range(20):
        store.add("far", stream(number))
    bad = sorted((store.folder / "parts").rglob("*.parquet"))[3]
    whole = bad.read_bytes()
    bad.write_bytes(bytes(len(whole)))
    Spool(home / "card").add(batch(20))
    assert edgekit("profile", "pull", "--spool", "card", "--board", "far").code == 0
    assert len(list((store.folder / "parts").rglob("*.parquet"))) == 2
    assert bad.name in edgekit("profile", "list", "FROM batches").complaint
    bad.write_bytes(whole)
    assert _uuids(edgekit) == list(range(21))


@pytest.mark.parametrize("wrong", [None, b"", b"nonsense" * 1000])
def test_a_catalog_that_is_lost_or_damaged_takes_nothing_with_it(
    edgekit: Any, home: Path, wrong: bytes | None
) -> None:
    ProfileStore().add("far", stream(1))
    path = data_folder() / "profiles" / "catalog.sqlite"
    whole = path.read_bytes()
    if wrong is None:
        path.unlink()
    else:
        path.write_bytes(wrong)
    Spool(home / "card").add(batch(2))
    for arguments in (*_ASKED[:3], ("profile", "pull", "--spool", "card", "--board", "far")):
        done = edgekit(*arguments)
        assert (done.code, "catalog" in done.complaint) == (2, True)
    path.write_bytes(whole)
    assert edgekit("profile", "pull", "--spool", "card", "--board", "far").code == 0
    assert _uuids(edgekit) == [1, 2]


def test_a_disk_that_is_full_is_named_and_nothing_is_lost(
    edgekit: Any, edgekit_process: Any, home: Path
) -> None:
    spool = Spool(home / "card")
    for number in range(40):
        spool.add(batch(number, operators=300))
    for most in (0, 20_000):
        done = edgekit_process(
            "profile", "pull", "--spool", "card", "--board", "far",
            preexec_fn=lambda most=most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )  # fmt: skip
        assert done.code != 0
        assert done.complaint
    assert edgekit("profile", "pull", "--spool", "card", "--board", "far").code == 0
    assert _uuids(edgekit) == list(range(40))


def _uuids(edgekit: Any) -> list[int]:
    asked = edgekit("profile", "list", "SELECT uuid FROM batches ORDER BY 1", "--json")
    assert asked.code == 0, asked.err
    return [int(row[0], 16) for row in asked.document["rows"]]

"""The spool on a board: bounded, ordered, and intact after a crash at any step."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.agent.spool import Disk, Spool
from edgekit.device.runtime.errors import BusyError, InputError
from tests.support.places import few_or_all
from tests.support.profile_batches import batch

MOST = 1 << 16


def numbers(data: bytes) -> list[int]:
    return [int(json.loads(body)["uuid"], 16) for body in bodies(data)]


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Crash(BaseException):
    """A power failure."""


class FastDisk(Disk):
    """A disk without fsync."""

    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)

    def sync(self, folder: Path) -> None:
        pass


class FaultyDisk(FastDisk):
    """Fails at the `at`-th change; a write may fail halfway."""

    def __init__(self, at: int, fault: type[BaseException] = Crash, late: bool = False) -> None:
        self.left = at
        self.fault = fault
        self.late = late

    def _step(self) -> bool:
        self.left -= 1
        return self.left == 0

    def _fail(self) -> None:
        if self.fault is OSError:
            raise OSError(errno.ENOSPC, "No space left on device")
        raise self.fault

    def write(self, path: Path, data: bytes) -> None:
        if self._step():
            path.write_bytes(data if self.late else data[: len(data) // 2])
            self._fail()
        super().write(path, data)

    def rename(self, source: Path, target: Path) -> None:
        last = self._step()
        if not last or self.late:
            super().rename(source, target)
        if last:
            self._fail()

    def unlink(self, path: Path) -> None:
        last = self._step()
        if not last or self.late:
            super().unlink(path)
        if last:
            self._fail()

    def sync(self, folder: Path) -> None:
        if self._step():
            self._fail()


def test_batches_come_back_in_order_until_they_are_acknowledged(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for i in range(5):
        spool.add(batch(i))
    for _ in range(2):
        found = spool.fetch(1 << 20)
        assert numbers(found.data) == [0, 1, 2, 3, 4]
    spool.add(batch(5))
    spool.acknowledge(found.spool, found.through)
    assert numbers(spool.fetch(1 << 20).data) == [5]
    spool.acknowledge(found.spool, found.through)  # a duplicate acknowledgement
    assert numbers(spool.fetch(1 << 20).data) == [5]


def test_a_fetch_holds_as_much_as_was_asked_for_and_one_batch_at_least(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for i in range(4):
        spool.add(batch(i))
    found = spool.fetch(1)
    assert (numbers(found.data), found.left, found.through) == ([0], 3, 1)


def test_an_acknowledgement_of_another_spool_removes_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.add(batch(0))
    spool.acknowledge("f" * 32, 99)
    assert numbers(spool.fetch(1).data) == [0]
    spool.acknowledge(spool.fetch(1).spool, 99)  # beyond the last batch
    spool.add(batch(1))
    assert numbers(spool.fetch(1).data) == [1]


def test_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", MOST, FastDisk())
    for i in range(300):
        spool.add(batch(i))
        assert size(tmp_path) <= MOST
    found = spool.fetch(1 << 20)
    kept = numbers(found.data)
    assert kept == list(range(300 - len(kept), 300))
    assert found.dropped == 300 - len(kept) > 0
    last = list(bodies(found.data))[-1]
    assert json.loads(last)["dropped"] == found.dropped


def test_a_damaged_file_is_quarantined_and_the_others_come(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", MOST)
    for i in range(8):
        spool.add(batch(i))
    files = sorted((tmp_path / "spool").glob("*.batch"))
    good = files[0].read_bytes()
    files[0].write_bytes(b"")
    files[1].write_bytes(good[:-1])
    files[2].write_bytes(good.replace(b"tiny", b"tinx"))
    files[3].write_bytes(b"\0" * 5000)
    files[4].write_bytes(good + good)
    files[5].unlink()
    files[5].mkdir()
    found = Spool(tmp_path / "spool", MOST).fetch(1 << 20)
    assert numbers(found.data) == [6, 7]
    assert found.quarantined == 6
    assert len(list((tmp_path / "spool" / "quarantine").iterdir())) >= 1
    spool.acknowledge(found.spool, found.through)
    assert spool.fetch(1).data == b""
    spool.add(batch(9))
    assert numbers(spool.fetch(1).data) == [9]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"spool": "x"}', b'{"spool": 3, "next": -1}'])
def test_a_damaged_state_keeps_the_batches_under_a_new_name(tmp_path: Path, text: bytes) -> None:
    spool = Spool(tmp_path / "spool")
    spool.add(batch(0))
    before = spool.fetch(1)
    (tmp_path / "spool" / "state.json").write_bytes(text)
    after = spool.fetch(1)
    assert after.spool != before.spool
    assert after.data == before.data
    spool.acknowledge(before.spool, before.through)
    assert spool.fetch(1).data == before.data


def test_a_batch_that_is_too_long_is_refused(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", MOST)
    spool.add(batch(0))
    with pytest.raises(InputError, match="expected a shorter one"):
        spool.add(batch(1, operators=3000))
    assert numbers(spool.fetch(1).data) == [0]


def test_two_processes_at_once_are_reported(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    with spool._locked(), pytest.raises(BusyError, match="another process"):
        spool.fetch(1)


def live(spool: Spool, begin: int, count: int, stored: list[int]) -> None:
    """Adds more batches than fit; fetches and acknowledges some."""
    for i in range(begin, begin + count):
        with contextlib.suppress(OSError):
            spool.add(batch(i, 4))
        if i % 8 == 5:
            found = spool.fetch(3000)
            stored.extend(n for n in numbers(found.data) if n not in stored)
            spool.acknowledge(found.spool, found.through)


def test_a_process_that_is_just_being_started_does_not_hold_the_spool(tmp_path: Path) -> None:
    """Between fork and exec, a child has all open files of its parent."""
    reader, writer = os.pipe()

    class Forking(Disk):
        child = 0

        def write(self, path: Path, data: bytes) -> None:
            if not self.child:
                self.child = os.fork()
                if self.child == 0:
                    os.close(writer)
                    os.read(reader, 1)
                    os._exit(0)
            super().write(path, data)

    disk = Forking()
    try:
        Spool(tmp_path, 1 << 20, disk).add(batch(1))
        assert Spool(tmp_path).fetch(1).data
    finally:
        os.close(writer)
        os.waitpid(disk.child, 0)
        os.close(reader)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "late"),
    few_or_all(itertools.product((Crash, OSError), (False, True)), [(Crash, True)]),
)
def test_a_crash_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, fault: type[BaseException], late: bool
) -> None:
    at, reached = 0, True
    while reached:
        at += 1
        folder = tmp_path / f"spool{at}"
        disk = FaultyDisk(at, fault, late)
        stored: list[int] = []
        with contextlib.suppress(Crash, OSError):
            live(Spool(folder, 1 << 14, disk), 0, 20, stored)
        reached = disk.left <= 0
        spool = Spool(folder, 1 << 14, FastDisk())
        live(spool, 100, 8, stored)
        found = spool.fetch(1 << 20)
        here = numbers(found.data)
        assert here == sorted(here), at
        assert not set(here) & set(stored), at
        sequences = [json.loads(body)["sequence"] for body in bodies(found.data)]
        # Every batch is here, stored at home, or counted once as dropped.
        assert sequences[-1] - len(here) - len(stored) <= found.dropped, at
        assert found.dropped <= sequences[-1] - len(here), at
        assert found.quarantined == 0, at
        assert size(folder) <= 1 << 14, at
    assert at > 80

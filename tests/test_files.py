"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.host.common.checked_files import WORK, in_use
from edgekit.host.common.files import atomic_write, atomic_writer, read_file


def test_a_file_is_replaced_at_once(tmp_path: Path):
    target = tmp_path / "out"
    atomic_write(target, b"old")
    atomic_write(target, b"new")
    assert target.read_bytes() == b"new" and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_device_or_pipe_is_never_replaced(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            atomic_write(target, b"data")
    assert pipe.is_fifo() and [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_a_file_of_more_than_64_mib_is_not_read(tmp_path: Path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(OSError, match="it has 67108865 bytes, more than 67108864"):
        read_file(large)


def test_a_folder_that_is_not_there_leaves_nothing(tmp_path: Path):
    with pytest.raises(OSError, match="No such file"):
        atomic_write(tmp_path / "missing" / "out", b"data")


def test_permissions_are_kept_and_a_link_stays_a_link(tmp_path: Path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    atomic_write(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o600


def test_writing_that_fails_leaves_the_old_file(tmp_path: Path):
    target = tmp_path / "out"
    atomic_write(target, b"old")
    with pytest.raises(ZeroDivisionError), atomic_writer(target) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert target.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_leftovers_that_cannot_be_removed_stop_nothing(tmp_path: Path):
    left = tmp_path / f"{WORK}left"
    left.touch()  # only folders are removed
    with in_use(tmp_path):
        assert left.exists()

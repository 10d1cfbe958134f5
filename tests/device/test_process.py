"""Detecting locked files from /proc/locks, which identifies files by device and inode numbers."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from edgekit.device.runtime.agent import process


def test_lock_is_seen_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as file:
        assert not process.is_locked(path)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert process.is_locked(path)
    assert not process.is_locked(path)


def test_same_number_on_another_file_system_is_not_locked(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    locks = tmp_path / "locks"
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE 1 ff:7f:{path.stat().st_ino} 0 EOF\n")
    assert not process.is_locked(path, locks)


def test_lock_is_seen_in_memory_too() -> None:
    """/dev/shm is usually a different file system from the tests' folder."""
    path = Path(f"/dev/shm/edgekit-test-{os.getpid()}")
    if not path.parent.is_dir():
        pytest.skip("no /dev/shm here")
    try:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert process.is_locked(path)
        assert not process.is_locked(path)
    finally:
        path.unlink()

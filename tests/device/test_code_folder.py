"""The probe sees whether the board's folder can hold releases, by what the file system says."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.code_folder import another_folder, find_trouble


def statvfs_with(flags: int) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, 9, 9, 9, 9, 9, 9, flags, 255))


@pytest.mark.parametrize(
    ("flags", "writable", "trouble"),
    [
        (os.ST_NOEXEC, True, "on a mount with noexec"),
        (os.ST_RDONLY | os.ST_NOEXEC, False, "on a read-only mount"),
        (0, False, "not writable by this user"),
        (os.ST_NOSUID | os.ST_NODEV, True, ""),
    ],
)
def test_trouble_with_a_folder(tmp_path: Path, flags: int, writable: bool, trouble: str) -> None:
    assert find_trouble(tmp_path, lambda _: statvfs_with(flags), lambda _: writable) == trouble


def test_an_installed_file_is_mapped_as_code(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime" / "x.pyz"
    runtime.parent.mkdir()
    runtime.write_bytes(b"x")
    assert find_trouble(tmp_path) == ""
    runtime.unlink()
    runtime.symlink_to("/proc/self/status")  # has no size, and cannot be mapped
    assert find_trouble(tmp_path) == ""


def test_a_security_module_may_refuse_to_map_code(tmp_path: Path) -> None:
    library = tmp_path / "releases" / "1" / "x.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"x")

    def map_data_only(*arguments: Any, prot: int, **options: Any) -> mmap.mmap:
        if prot & mmap.PROT_EXEC:
            raise PermissionError(errno.EACCES, "Permission denied")
        return mmap.mmap(*arguments, prot=prot, **options)

    trouble = find_trouble(tmp_path, map_file=map_data_only)
    assert trouble == "whose files may not be executed (Permission denied)"


def test_another_folder_is_on_a_disk_that_may_hold_code(tmp_path: Path) -> None:
    for name in ("noexec", "memory", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data").chmod(0o1777)
    rows = (
        f"/dev/a {tmp_path}/noexec ext4\nnone {tmp_path}/memory tmpfs\n/dev/b {tmp_path}/data f2fs"
    )

    def statvfs(path: str) -> os.statvfs_result:
        return statvfs_with(0 if path.startswith(f"{tmp_path}/data") else os.ST_NOEXEC)

    assert another_folder(rows, statvfs, 7) == f"{tmp_path}/data/edgekit-7"
    (tmp_path / "data").chmod(0o755)
    assert another_folder(rows, statvfs, 7) == f"{tmp_path}/data/edgekit"
    assert another_folder(rows, lambda _: statvfs_with(os.ST_NOEXEC), 7) == ""

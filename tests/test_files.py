"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.host.files import write_whole


def test_a_file_is_replaced_at_once(tmp_path: Path):
    target = tmp_path / "out"
    write_whole(target, b"old")
    write_whole(target, b"new")
    assert target.read_bytes() == b"new" and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_device_or_pipe_is_never_replaced(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            write_whole(target, b"data")
    assert pipe.is_fifo() and [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_a_folder_that_is_not_there_leaves_nothing(tmp_path: Path):
    with pytest.raises(OSError, match="No such file"):
        write_whole(tmp_path / "missing" / "out", b"data")

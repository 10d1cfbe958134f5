"""Behavior specific to this machine as a board; the rest is in test_contract.py."""

from __future__ import annotations

import resource
import sys
import tracemalloc
from pathlib import Path

import pytest

from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.errors import IncompatibleError, TransferError
from tests.support.patience import AMPLE

SECONDS = AMPLE


def test_python_is_the_one_that_runs_this(tmp_path: Path) -> None:
    assert LocalTransport(tmp_path / "board").python == sys.executable


def test_pythonpath_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    code = "import os; print(sorted(os.environ))"
    transport = LocalTransport(tmp_path / "board")
    done = transport.run([sys.executable, "-I", "-S", "-c", code], deadline=SECONDS)
    assert b"PYTHONPATH" not in done.stdout


def test_disk_full_leaves_the_old_file(tmp_path: Path) -> None:
    transport = LocalTransport(tmp_path / "board")
    transport.put(b"old", "file", deadline=SECONDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(TransferError, match=r"board 'local': file: expected to .*too large"):
            transport.put(bytes(5000), "file", deadline=SECONDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.read_bytes() for p in (tmp_path / "board").iterdir()] == [b"old"]


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    transport = LocalTransport(tmp_path / "file" / "board")
    with pytest.raises(IncompatibleError, match="set EDGEKIT_HOME"):
        transport.run(["true"], deadline=AMPLE)


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    transport = LocalTransport(tmp_path / "board")
    transport.put(b"small", "file", deadline=AMPLE)
    tracemalloc.start()
    try:
        assert transport.get("file", deadline=AMPLE) == b"small"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()

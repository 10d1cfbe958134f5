"""Compiler processes do not outlive their caller."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.host.compiler.toolchain.process import run_watched
from tests.support.patience import until

_TREE = "sleep {mark} & sleep {mark}; true"  # a process with a child
_CALL = """
import os, sys
from edgekit.host.compiler.toolchain.process import run_watched
run_watched(["sh", "-c", sys.argv[1]], os.environ, 600)
"""


def _running(mark: str) -> int:
    """Number of processes with the argument `mark`."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += path.read_bytes().split(b"\0")[:2] == [b"sleep", mark.encode()]
    return found


def _until(wanted: int, mark: str) -> None:
    until(lambda: _running(mark) == wanted)


def test_code_and_errors_come_back() -> None:
    done = run_watched(["sh", "-c", "echo out; echo err >&2; exit 7"], os.environ, 20)
    assert (done.returncode, done.stderr) == (7, "err\n")
    assert run_watched(["true"], os.environ, 20).returncode == 0


def test_killed_caller_leaves_nothing_running() -> None:
    mark = f"999.{time.time_ns()}"
    caller = subprocess.Popen([sys.executable, "-c", _CALL, _TREE.format(mark=mark)])
    _until(2, mark)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    _until(0, mark)


def test_what_takes_too_long_is_ended_with_all_its_processes() -> None:
    mark = f"999.{time.time_ns()}"
    with pytest.raises(subprocess.TimeoutExpired):
        run_watched(["sh", "-c", _TREE.format(mark=mark)], os.environ, 0.3)
    _until(0, mark)

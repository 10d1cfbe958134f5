"""Runs a command on a terminal and captures its output."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def shown_on_terminal(*arguments: str, columns: int = 100, code: int = 0) -> str:
    """The output of a command on a terminal; it must end with exit code `code`."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from edgekit.host.cli.main import run; run()", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "xterm", "COLUMNS": str(columns)},
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # EIO: the other end is closed
    os.close(ours)
    assert process.wait() == code, seen
    return seen.decode()

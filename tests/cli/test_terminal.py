"""On a terminal, tables are drawn; elsewhere there is nothing but plain lines."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def shown_on_terminal(*arguments: str) -> str:
    """What a command writes to a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from edgekit.host.cli.main import run; run()", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # how Linux says that the other end is closed
    os.close(ours)
    assert process.wait() == 0, seen
    return seen.decode()


def test_table_is_drawn() -> None:
    shown = shown_on_terminal("boards")
    assert "─" in shown
    assert "a57" in shown


def test_json_is_the_same_on_a_terminal() -> None:
    assert shown_on_terminal("boards", "--json").startswith("{\r\n")


def test_spinner_goes_away() -> None:
    shown = shown_on_terminal("doctor")
    assert "compiles and runs C" in shown
    assert "..." not in shown


def test_deploy_draws_its_states(face_model: Path) -> None:
    shown = shown_on_terminal("deploy", str(face_model.with_name("okay_nabu.tflite")))
    assert "deploying to local: " in shown
    assert " ...\r\n" not in shown
    assert "? bytes" not in shown
    assert "golden output met" in shown

"""Commands of the host on systems without /proc, such as macOS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What Python opens or lists; the C compiler, another program, finds its own way on each system.
HIDE = """
import os, sys
def hide(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
        if os.fsdecode(arguments[0]).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", arguments[0])
sys.addaudithook(hide)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("compile", "okay_nabu.tflite", "--board", "rpi4", "-o", "nabu.ekb"),
        pytest.param(("doctor", "--board", "local"), marks=pytest.mark.exhaustive),
        pytest.param(("deploy", "okay_nabu.tflite"), marks=pytest.mark.exhaustive),
        pytest.param(("lock", "okay_nabu.tflite", "--board", "rpi4"), marks=pytest.mark.exhaustive),
    ],
    ids=lambda command: command[0],
)
def test_a_command_needs_no_proc(home: Path, command: tuple[str, ...]) -> None:
    (home / "okay_nabu.tflite").symlink_to(ROOT / "models" / "okay_nabu.tflite")
    (home / "sitecustomize.py").write_text(HIDE)
    hidden = {**os.environ, "PYTHONPATH": f"{home}:{ROOT / 'src'}"}
    probe = [sys.executable, "-c", "open('/proc/meminfo')"]
    assert subprocess.run(probe, env=hidden, capture_output=True, check=False).returncode == 1
    program = [sys.executable, "-c", "from edgekit.host.cli.main import run; run()", *command]
    done = subprocess.run(program, env=hidden, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

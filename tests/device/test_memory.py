"""The Python part of the runtime takes less than 25 MB in addition to the model's memory, and 28 MB
with Python 3.14."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from tests.support.places import few_or_all

MOST_KB = 25_000 if sys.version_info < (3, 14) else 28_000
# Runs the runtime as a board does, then prints the peak resident memory of the process.
PROGRAM = """
import os, runpy, sys
sys.argv = sys.argv[1:]
os._exit = sys.exit  # which the agent calls at its end
sys.path.insert(0, sys.argv[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
status = open("/proc/self/status").read().split("VmHWM:")[1]
sys.stderr.write("peak %d" % int(status.split()[0]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "threads"),
    few_or_all(
        itertools.product(("run", "bench", "bench 1000", "status"), ("1", "2")),
        [("run", "1"), ("bench 1000", "2"), ("status", "1")],
    ),
)
def test_python_part(
    device: Device, tiny: Callable[..., Bundle], board_root: Path, command: str, threads: str
) -> None:
    bundle = tiny()
    device.deploy(bundle)
    np.savez(board_root / "x.npz", x=np.zeros(4, np.float32))
    arguments = {
        "run": ["run", "--input", "x.npz", "--output", "y.npz", "--threads", threads],
        "bench": ["bench", "--count", "20", "--threads", threads],
        "bench 1000": ["bench", "--count", "1000", "--threads", threads],
        "status": ["status"],
    }[command]
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            PROGRAM,
            "current/runtime.pyz",
            "--root",
            ".",
            *arguments,
        ],
        cwd=board_root,
        capture_output=True,
        check=True,
        text=True,
    )
    own = bundle.manifest.memory.total // 1024
    assert int(done.stderr.split()[1]) - own < MOST_KB

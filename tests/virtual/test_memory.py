"""A model that exceeds a board's memory limit runs there once it is split.

`test_bands.py` limits the memory of a program on this machine.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.host import compile_model, connect
from edgekit.host.virtual import down, up

pytestmark = [pytest.mark.boards, pytest.mark.exhaustive]

_MODEL = Path(__file__).parents[2] / "models" / "face_detection_back.tflite"
_PROGRAM = Path(__file__).parents[1] / "support" / "limited_memory.py"
_LIMIT = 1536 << 10  # bytes; the unsplit model needs three times as much
_BESIDE = 2 << 20  # for input and output arrays and Python's copies of them
_SECONDS = 300.0


@pytest.mark.parametrize("name", ["a57", "rv64v"])
def test_only_the_split_model_runs_within_the_limit(name, own_home):
    up(name)
    try:
        device = connect(name)
        whole = compile_model(_MODEL, board=device.profile)
        small = compile_model(_MODEL, board=device.profile, memory_limit=_LIMIT)
        assert small.manifest.memory.arena_bytes <= _LIMIT < whole.manifest.memory.arena_bytes
        for bundle in (whole, small):
            device.deploy(bundle)  # its health check compares golden outputs
        device.transport.put(_PROGRAM.read_bytes(), "limited_memory.py", deadline=_SECONDS)
        said = []
        for bundle in (whole, small):
            folders = [f"releases/{b.manifest.id}" for b in (small, bundle)]
            words = ["limited_memory.py", "current/runtime.pyz", *folders, str(_LIMIT + _BESIDE)]
            command = [device.transport.python, *words]
            done = device.transport.run(command, deadline=_SECONDS)
            assert done.exit_code == 0, done.stderr.decode()
            said.append(json.loads(done.stdout))
        assert "bytes of memory, found that the system refused" in said[0]
        assert said[1] == "runs"
    finally:
        down(name)

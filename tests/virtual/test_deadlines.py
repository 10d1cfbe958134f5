"""A wake word beside a detector on one core: its frames are done in time, by the board's clock.

The board counts instructions and its clock is that count, so the host's load does not matter.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from edgekit.host import compile_model, connect
from edgekit.host.deploy.api import Device
from edgekit.host.errors import UnreachableError
from edgekit.host.virtual import BoardOptions, down, up

pytestmark = [pytest.mark.boards, pytest.mark.long]

_MODELS = Path(__file__).parents[2] / "models"
_MOST_LATE = 1  # of 1000: 99.9%
_LOOK_SECONDS = 5.0  # each look starts a program on the board
_DETECTOR = """
import edgekit_runtime
model = edgekit_runtime.open()
inputs = {one.name: bytes(one.bytes) for one in model.inputs}
count = 0
while True:
    model.run(inputs)
    count += 1
    print("done", count, flush=True)
"""
_WAKE = """
import time
import edgekit_runtime
STEP = 0.03  # of microWakeWord: three frames of 10 ms
model = edgekit_runtime.open()
inputs = {one.name: bytes(one.bytes) for one in model.inputs}
start = time.monotonic() + 1
late, worst = 0, 0.0
for frame in range(1000):
    due = start + frame * STEP
    time.sleep(max(0, due - time.monotonic()))
    model.run(inputs)
    took = time.monotonic() - due
    late, worst = late + (took > STEP), max(worst, took)
print(f"late {late} worst {1000 * worst:.1f} ms", flush=True)
"""


def test_a_wake_word_keeps_its_deadline_beside_a_detector(own_home, tmp_path, record_property):
    up("a57", options=BoardOptions(counting=True))
    try:
        with connect("a57").temporary() as board:
            detector, wake = board.named("detector"), board.named("wake")
            _install(detector, tmp_path, "face_detection_short_range", _DETECTOR, priority=19)
            _install(wake, tmp_path, "okay_nabu", _WAKE, priority=0)
            said = _last_line(wake, "late")
            inferences = int(_last_line(detector, "done").split()[1])
            for one in (wake, detector):
                one.stop_application()
    finally:
        down("a57")
    record_property("count", f"{said}, {inferences} inferences of the detector")
    assert int(said.split()[1]) <= _MOST_LATE, said
    assert inferences > 100  # the detector had the rest of the core


def _install(board: Device, folder: Path, model: str, program: str, priority: int) -> None:
    """Installs a model with a program that runs it."""
    made = folder / model
    made.mkdir()
    (made / "main.py").write_text(program)
    (made / "app.toml").write_text(f"watchdog_seconds = 0\npriority = {priority}\n")
    board.install(made, compile_model(_MODELS / f"{model}.tflite", board=board.profile))
    while True:  # how long it takes to start depends on the host's load
        with contextlib.suppress(UnreachableError):
            board.start_application()
            return


def _last_line(board: Device, first: str) -> str:
    """The program's newest line that begins with this word."""
    while True:
        state = board.application_status().state
        found = [line for line in board.application_log() if line.startswith(first)]
        if found:
            return found[-1]
        assert state == "running"
        time.sleep(_LOOK_SECONDS)

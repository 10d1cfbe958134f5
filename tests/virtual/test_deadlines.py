"""A wake word beside a detector on one core: its frames are done in time, by counted cycles.

A virtual board's Linux, with the priorities of two applications, decides who has its core. The
board counts instructions and its clock is that count, so the host's load does not matter. What was
executed then counts as cycles of a Cortex-A57 (board_time_schedule.py). Frames come ten times as
often as those of a microphone: the detector leaves them less room, and a thousand take three
seconds of the board, of which each is a minute of a host's core.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host import compile_model, connect
from edgekit.host.deploy.api import Device
from edgekit.host.errors import UnreachableError
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import target_of
from edgekit.host.simulator.together import shared_cores
from edgekit.host.virtual import BoardOptions, down, up
from edgekit.kb.targets.board import load_board
from tests.support.board_time_schedule import Frame, responses

pytestmark = [pytest.mark.boards, pytest.mark.long]

_MODELS = Path(__file__).parents[2] / "models"
_MOST_LATE = 1  # of 1000: 99.9%
_STEP = 0.03  # seconds from frame to frame of microWakeWord, and their deadline
_LOOK_SECONDS = 60.0  # each look starts a program on the board
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
import json
import time
import edgekit_runtime
STEP = 3_000_000  # ns
model = edgekit_runtime.open()
inputs = {one.name: bytes(one.bytes) for one in model.inputs}
start = time.monotonic_ns() + 1_000_000_000
frames = []
for frame in range(1000):
    due = start + frame * STEP
    time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
    begin, own = time.monotonic_ns(), time.thread_time_ns()
    model.run(inputs)
    own = time.thread_time_ns() - own
    frames.append((begin - due, own, time.monotonic_ns() - begin - own))
print("frames", json.dumps(frames), flush=True)
"""
_DETECTS, _WAKES = "face_detection_short_range", "okay_nabu"


def test_a_wake_word_keeps_its_deadline_beside_a_detector(own_home, tmp_path, record_property):
    up("a57", options=BoardOptions(counting=True))
    try:
        with connect("a57").temporary() as board:
            detector, wake = board.named("detector"), board.named("wake")
            _install(detector, tmp_path, _DETECTS, _DETECTOR, priority=19)
            _install(wake, tmp_path, _WAKES, _WAKE, priority=0)
            frames = json.loads(_last_line(wake, "frames").partition(" ")[2])
            inferences = int(_last_line(detector, "done").split()[1])
            for one in (wake, detector):
                one.stop_application()
    finally:
        down("a57")
    took = _board_time([Frame(*numbers) for numbers in frames])
    record_property("count", f"worst {1000 * max(took):.2f} ms, {inferences} of the detector")
    assert len(took) == 1000 and sum(one > _STEP for one in took) <= _MOST_LATE, max(took)
    assert inferences > 100  # the detector had the rest of the core


def _board_time(frames: list[Frame]) -> list[float]:
    """The seconds of each frame on the A57."""
    made = [compile_model(_MODELS / f"{name}.tflite", board="a57") for name in (_WAKES, _DETECTS)]
    target = target_of(load_board("a57"))
    alone = [estimate_model(one.manifest, one.files, target) for one in made]
    wake, detector = (
        estimate_model(one.manifest, one.files, replace(target, core=shared.core)).cost
        for one, shared in zip(made, shared_cores(target.core, alone), strict=True)
    )
    return list(responses(frames, wake, detector, target.core, _STEP))


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

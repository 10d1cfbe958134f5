"""Instructions per inference on a counting board: exactly repeatable, and as recorded.

The record is made by scripts/count_instructions.py. A change of more than 1 % is shown as a
warning: it may be meant, and then the record is made anew in the same commit.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.host import compile_model, connect
from edgekit.host.api import Device
from edgekit.host.boards import BoardOptions, down, up
from edgekit.host.release import count_instructions

pytestmark = pytest.mark.boards

_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"
_RECORD = json.loads(Path(__file__).with_name("instructions.json").read_text())
_SHOWN_ABOVE = 0.01


@pytest.fixture
def counting_a57(own_home: Path) -> Iterator[Device]:
    up("a57", options=BoardOptions(counting=True))
    try:
        yield connect("a57")
    finally:
        down("a57")


def test_counts_repeat_and_are_as_recorded(counting_a57):
    counting_a57.deploy(compile_model(_MODEL, board="a57"))
    first = count_instructions(counting_a57.transport, repeats=3)
    second = count_instructions(counting_a57.transport, repeats=3)
    assert first.user_only
    assert first.per_inference == second.per_inference
    recorded = _RECORD["a57"][_MODEL.stem]
    change = first.per_inference / recorded - 1
    if abs(change) > _SHOWN_ABOVE:
        warnings.warn(
            f"{_MODEL.stem} on a57: {first.per_inference:,} instructions, recorded {recorded:,} "
            f"({change:+.1%}); scripts/count_instructions.py makes the record anew",
            stacklevel=1,
        )
    assert abs(change) < 0.5, "the record is of another program"

"""Instructions per inference on counting boards: repeatable, and as recorded.

scripts/count_instructions.py writes the record. A change of more than 1% is only a warning: if
intended, update the record in the same commit.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.host import compile_model, connect
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.release import InstructionCount, count_instructions
from edgekit.host.lab.zoo.models import extended_zoo
from edgekit.host.virtual import BoardOptions, down, up

pytestmark = pytest.mark.boards

_MODELS = Path(__file__).parents[2] / "models"
_ZOO = extended_zoo(_MODELS)
_RECORD = json.loads(Path(__file__).with_name("instructions.json").read_text())
_SHOWN_ABOVE = 0.01
# Buffer addresses affect copies; if kernel code is counted, so do timer interrupts.
_ALLOWED = 1e-3


@pytest.fixture(scope="module", params=["a57", pytest.param("rv64v", marks=pytest.mark.exhaustive)])
def device(request: pytest.FixtureRequest, shared_home: Path) -> Iterator[Device]:
    """A running counting board, one at a time."""
    up(request.param, options=BoardOptions(counting=True))
    try:
        yield connect(request.param)
    finally:
        down(request.param)


def _count(device: Device, model: Path, repeats: int) -> InstructionCount:
    """Counts instructions on the board; warns about deviations from the record."""
    device.deploy(compile_model(model, board=device.profile))
    found = count_instructions(device, repeats=repeats)
    recorded = _RECORD[device.name][model.stem]
    change = found.per_inference / recorded - 1
    if abs(change) > _SHOWN_ABOVE:
        warnings.warn(
            f"{model.stem} on {device.name}: {found.per_inference:,} instructions, recorded "
            f"{recorded:,} ({change:+.1%}); scripts/count_instructions.py makes the record anew",
            stacklevel=2,
        )
    assert abs(change) < 0.5, "the record is of another program"
    return found


def test_counts_repeat_and_are_as_recorded(device):
    first = _count(device, _MODELS / "okay_nabu.tflite", repeats=9)
    second = count_instructions(device, repeats=9)
    assert first.user_only == (device.name == "a57")
    assert second.per_inference == pytest.approx(first.per_inference, rel=_ALLOWED, abs=0)


@pytest.mark.long
@pytest.mark.parametrize("model", _ZOO.models, ids=lambda path: path.stem)
def test_all_counts_are_as_recorded(device, model):
    _count(device, model, repeats=2)

"""Every model's outputs against LiteRT's kernel sets."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from edgekit.host.lab.bench.agreement import Agreement, compare_release
from edgekit.host.lab.zoo.models import compile_release, extended_zoo
from tests.support.places import few_or_all

pytestmark = [pytest.mark.slow, pytest.mark.peers]

_MODELS = Path(__file__).parents[2] / "models"
_ZOO = extended_zoo(_MODELS)
_EXCEPTIONS = tomllib.loads(Path(__file__).with_name("exceptions.toml").read_text("utf-8"))
_STEPS = 40
_FEW = ("okay_nabu", "face_detection_short_range")


def _agrees(model: Path, scratch: Path, count: int) -> None:
    release = compile_release(model, "local", scratch)
    agreement = compare_release(release, model, _ZOO.samples(), count, _STEPS, scratch)
    allowed = Agreement.BETWEEN if model.stem in _EXCEPTIONS else Agreement.EQUAL
    for output in agreement.outputs:
        assert output.verdict in (Agreement.EQUAL, allowed), output
        assert output.same_top == output.calls, output


@pytest.mark.parametrize(
    "model",
    few_or_all(_ZOO.models, [path for path in _ZOO.models if path.stem in _FEW]),
    ids=lambda path: path.stem,
)
def test_outputs_agree_on_a_few_inputs(model, tmp_path):
    _agrees(model, tmp_path, 3)


@pytest.mark.long
@pytest.mark.parametrize("model", _ZOO.models, ids=lambda path: path.stem)
def test_outputs_agree_on_many_inputs(model, tmp_path):
    _agrees(model, tmp_path, 24)


def test_an_exception_names_a_model_and_a_reason():
    assert all(entry["reason"] for entry in _EXCEPTIONS.values())

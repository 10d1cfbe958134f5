"""Every model's outputs against LiteRT's kernel sets."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from edgekit.host.compiler import compile_artifact

from edgekit.host.bench.agreement import Verdict, compare_with_litert
from edgekit.host.bench.cases import make_cases
from edgekit.host.bench.process import Worker
from edgekit.host.bench.zoo import open_zoo
from edgekit.kb.board import load_board

pytestmark = pytest.mark.peers

_MODELS = Path(__file__).parents[2] / "models"
_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
_ZOO = open_zoo(_MODELS, Path(_EXTRA) if _EXTRA else None)
_EXCEPTIONS = tomllib.loads(Path(__file__).with_name("exceptions.toml").read_text("utf-8"))
_STEPS = 8


def _agrees(model: Path, scratch: Path, count: int) -> None:
    artifact = compile_artifact(model, load_board("local"))
    release = scratch / "release"
    release.mkdir()
    (release / "model.so").write_bytes(artifact.library)
    (release / "weights.bin").write_bytes(artifact.weights)
    with Worker("edgekit", release) as worker:
        steps = _STEPS if worker.stateful else 1
        cases = make_cases(worker.inputs, count, _ZOO.samples(), steps)
    agreement = compare_with_litert(release, model, cases, scratch)
    allowed = Verdict.BETWEEN if model.stem in _EXCEPTIONS else Verdict.EQUAL
    for output in agreement.outputs:
        assert output.verdict in (Verdict.EQUAL, allowed), output
        assert output.same_top == output.calls, output


@pytest.mark.parametrize("model", _ZOO.models, ids=lambda path: path.stem)
def test_outputs_agree_on_a_few_inputs(model, tmp_path):
    _agrees(model, tmp_path, 3)


@pytest.mark.long
@pytest.mark.parametrize("model", _ZOO.models, ids=lambda path: path.stem)
def test_outputs_agree_on_many_inputs(model, tmp_path):
    _agrees(model, tmp_path, 24)


def test_an_exception_names_a_model_and_a_reason():
    assert all(entry["reason"] for entry in _EXCEPTIONS.values())

"""The ONNX models in EDGEKIT_EXTRA_DATA against ONNX Runtime, from the file to the library."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.golden.vectors import random_input
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, run_here

pytestmark = pytest.mark.peers

_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
_MODELS = sorted((Path(_EXTRA) / "models").rglob("*.onnx")) if _EXTRA else []
_OPEN_SHAPES = {"ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)}}
_LIMIT = 1e-5  # of the largest value


@pytest.mark.slow
@pytest.mark.parametrize("path", _MODELS, ids=lambda path: path.stem)
def test_outputs_are_those_of_onnx_runtime(path, tmp_path):
    import onnxruntime

    imported = import_model(path, _OPEN_SHAPES.get(path.stem))
    rng = np.random.default_rng(3)
    inputs = {n: random_input(imported.tensors[n], rng) for n in imported.inputs}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    made = run_here(build(run_passes(imported)[0], load_board("local"), tmp_path), inputs)
    for name, want in zip(names, session.run(names, inputs), strict=True):
        np.testing.assert_allclose(made[name], want, rtol=0, atol=_LIMIT * np.abs(want).max())

"""The custom operator's replacement matches XNNPACK's result for the operator itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.host.lab.bench.agreement import with_builtin_operators
from edgekit.host.lab.bench.process import Worker

pytestmark = pytest.mark.peers

_MODELS = Path(__file__).parents[3] / "models"


@pytest.mark.slow
def test_the_rewritten_model_gives_the_same_outputs(tmp_path):
    model = _MODELS / "selfie_segmentation.tflite"
    rewritten = with_builtin_operators(model, tmp_path)
    with Image.open(_MODELS / "astronaut.png") as picture:
        values = np.asarray(picture.convert("RGB").resize((256, 256)), np.float32) / 255
    np.savez(tmp_path / "in.npz", in0=values[np.newaxis, np.newaxis])
    outputs = []
    for number, (kind, path) in enumerate(
        [("xnnpack", model), ("xnnpack", rewritten), ("builtin", rewritten)]
    ):
        with Worker(f"litert:{kind}", path) as worker:
            worker.run(tmp_path / "in.npz", tmp_path / f"{number}.npz")
        with np.load(tmp_path / f"{number}.npz") as stored:
            outputs.append(stored["out0"])
    assert np.ptp(outputs[0]) > 0.5
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(outputs[2], outputs[0], rtol=0, atol=1e-3)


def test_a_model_without_it_is_left_alone(tmp_path):
    model = _MODELS / "okay_nabu.tflite"
    assert with_builtin_operators(model, tmp_path) is model

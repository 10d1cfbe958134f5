"""ONNX models with rows whose number depends on data, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.onnx_models import model, node, save, value

onnxruntime = pytest.importorskip("onnxruntime")

N = 13
# The rows of `both` [N, 2] where x is not 0, and as an image [1, 2, rows].
PAIR = [
    node("NonZero", ["x"], ["places"]),
    node("Transpose", ["places"], ["at"]),
    node("GatherND", ["both", "at"], ["pairs"]),
    node("Transpose", ["pairs"], ["columns"]),
    node("Unsqueeze", ["columns", "first"], ["image"]),
]


def saved(folder, nodes, constants=(), inputs=None, opset=17):
    """The path of a model from `inputs` (default: `x` [N] f32) to y."""
    inputs = inputs or [value("x", [N])]
    return save(model(nodes, inputs, ["y"], dict(constants), opset), folder, "model.onnx")


def agrees(path, x, max_rows=None):
    """Compares the valid part of y with ONNX Runtime, before and after passes."""
    (want,) = onnxruntime.InferenceSession(path).run(["y"], x)
    graph = import_model(path, max_rows=max_rows)
    for each in (graph, run_passes(graph)[0]):
        found = evaluate(each, x).outputs
        got = found["y"][tuple(slice(size) for size in want.shape)]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        if "y_length" in found:
            assert found["y_length"].tolist()[0] in want.shape
        else:
            assert found["y"].shape == want.shape
    return found


def counts(*numbers):
    """Inputs `x` [N] of which so many elements are not 0, one for each of `numbers`."""
    for count in numbers:
        x = np.zeros(N, np.float32)
        x[N - count :] = np.random.default_rng(count).random(count) + 0.5
        yield {"x": x}


def both():
    """The constants of `PAIR`."""
    rng = np.random.default_rng(1)
    return {"both": rng.random((N, 2)).astype(np.float32), "first": np.array([0])}

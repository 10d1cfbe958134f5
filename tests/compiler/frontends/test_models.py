"""Every model: imports, folds, and matches LiteRT's reference kernels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.compiler.transforms.passes.fold import fold
from tests.support.places import few_or_all

_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
_FOLDERS = [Path(__file__).parents[3] / "models", *([Path(_EXTRA) / "models"] if _EXTRA else [])]
MODELS = sorted({p.name: p for f in _FOLDERS for p in f.rglob("*.tflite")}.values())

# LiteRT lacks MediaPipe's custom operator: test_tflite.py tests it separately.
_UNKNOWN_TO_LITERT = {"selfie_segmentation"}


def draw(graph, rng):
    values = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.dtype.is_quantized:
            limits = np.iinfo(tensor.dtype.numpy)
            drawn = rng.integers(limits.min, limits.max + 1, tensor.shape)
        else:
            drawn = rng.uniform(-1, 1, tensor.shape)
        values[name] = drawn.astype(tensor.dtype.numpy)
    return values


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_imports_and_folds(path):
    graph = dead(fold(import_model(path)))
    kinds = {node.op.kind for node in graph.nodes}
    assert not kinds & {"shape_of", "pack"}
    constants = {n for n, t in graph.tensors.items() if t.data is not None}
    assert not [n for n in graph.nodes if n.inputs and constants.issuperset(n.inputs)]
    written = [t for n in graph.nodes for t in n.outputs]
    assert len(set(written)) == len(written)
    assert len({n.name for n in graph.nodes}) == len(graph.nodes)
    readable = {*graph.inputs, *constants}
    for node in graph.nodes:
        assert readable.issuperset(n for n in node.inputs if n is not None)
        readable.update(node.outputs)
    assert readable.issuperset(graph.outputs)


def test_sparse_weights_stay_marked():
    graph = dead(fold(import_model(_FOLDERS[0] / "face_detection_full_range_sparse.tflite")))
    marked = [t for t in graph.tensors.values() if t.sparse]
    assert len(marked) == 46
    zeros = [1 - np.count_nonzero(t.data) / t.elements for t in marked]
    assert all(t.dtype.name == "F32" for t in marked)
    assert 0.5 < np.mean(zeros) < 0.95


_SHARED = [p for p in MODELS if p.stem not in _UNKNOWN_TO_LITERT]


@pytest.mark.peers
@pytest.mark.parametrize("path", few_or_all(_SHARED, _SHARED[::2]), ids=lambda p: p.stem)
def test_agrees_with_litert(path, litert_session):
    graph = dead(fold(import_model(path)))
    run = litert_session(path.read_bytes())
    rng, states = np.random.default_rng(1), None
    for _ in range(3 if graph.states else 1):
        inputs = draw(graph, rng)
        expected = run(inputs)
        found = evaluate(graph, inputs, states)
        states = found.states
        for name, value in expected.items():
            y = found.outputs[name]
            assert y.shape == value.shape
            if value.dtype == np.float32:
                np.testing.assert_allclose(y, value, rtol=0, atol=1e-5 * np.abs(value).max())
            else:
                np.testing.assert_array_equal(y, value)

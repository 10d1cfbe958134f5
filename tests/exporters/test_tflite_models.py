"""Each model, written and read again: the same graph; and LiteRT runs what was written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tflite

from edgekit.host.exporters import write_tflite
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.importers import import_model
from edgekit.host.importers.tflite import graph_from_tflite
from tests.support.op_graphs import inputs_of

_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
_FOLDERS = [Path(__file__).parents[2] / "models", *([Path(_EXTRA) / "models"] if _EXTRA else [])]
MODELS = sorted({p.name: p for f in _FOLDERS for p in f.rglob("*.tflite")}.values())

# LiteRT's reference kernels sum pools of 128x128 pixels in f32, and noise as an input magnifies
# what is lost.
_LIMITS = {"selfie_segmentation": 5e-4}


def _inputs(graph, rng):
    """Pixels and codes of every value."""
    drawn = inputs_of(graph, int(rng.integers(1 << 30)))
    return {
        n: rng.uniform(-1, 1, v.shape).astype(v.dtype) if v.dtype.kind == "f" else v
        for n, v in drawn.items()
    }


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_what_is_written_is_the_same_graph(path):
    graph = import_model(path)
    content = write_tflite(graph)
    again = graph_from_tflite(content, path.stem)
    assert content == write_tflite(import_model(path))  # equal graphs, equal bytes
    assert (again.inputs, again.outputs) == (graph.inputs, graph.outputs)
    assert {s: v.initial.tobytes() for s, v in again.states.items()} == {
        s: v.initial.tobytes() for s, v in graph.states.items()
    }
    rng, before, after = np.random.default_rng(1), None, None
    for _ in range(2 if graph.states else 1):
        inputs = _inputs(graph, rng)
        expected, found = evaluate(graph, inputs, before), evaluate(again, inputs, after)
        before, after = expected.states, found.states
        for name in graph.outputs:
            np.testing.assert_array_equal(found.outputs[name], expected.outputs[name])


@pytest.mark.peers
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_litert_runs_it(path, litert_session):
    graph = import_model(path)
    run = litert_session(write_tflite(graph))
    rng, states = np.random.default_rng(2), None
    for _ in range(3 if graph.states else 1):
        inputs = _inputs(graph, rng)
        expected, found = evaluate(graph, inputs, states), run(inputs)
        states = expected.states
        assert tuple(found) == graph.outputs
        for name, y in found.items():
            value = expected.outputs[name]
            if y.dtype == np.float32:
                limit = _LIMITS.get(path.stem, 1e-5) * np.abs(value).max()
                np.testing.assert_allclose(y, value, rtol=0, atol=limit)
            else:
                np.testing.assert_array_equal(y, value)


@pytest.mark.peers
def test_a_signature_names_inputs_and_outputs():
    from ai_edge_litert.interpreter import Interpreter

    graph = import_model(_FOLDERS[0] / "face_detection_front.tflite")
    content = write_tflite(graph, {"notes": b"of the model"})
    runner = Interpreter(model_content=content).get_signature_runner("serving_default")
    assert set(runner.get_input_details()) == set(graph.inputs)
    assert set(runner.get_output_details()) == set(graph.outputs)
    model = tflite.Model.GetRootAs(content)
    assert model.Metadata(0).Name() == b"notes"
    assert model.Buffers(model.Metadata(0).Buffer()).DataAsNumpy().tobytes() == b"of the model"

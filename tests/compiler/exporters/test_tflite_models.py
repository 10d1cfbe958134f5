"""Each model is the same graph after export and re-import, and LiteRT runs the exported file."""

from __future__ import annotations

import numpy as np
import pytest
import tflite

from edgekit.host.compiler.exporters import write_tflite
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.inputs import read_attached, read_notes
from edgekit.host.compiler.ir.evaluate import evaluate
from tests.support.export_models import SHIPPED, drawn_inputs, few, models, need_close
from tests.support.places import few_or_all

_SPARSE = {"face_detection_full_range_sparse": 46, "pose_detection": 38, "hand_landmark_lite": 0}

_ALL = models(".tflite")


@pytest.mark.slow
@pytest.mark.parametrize("path", few_or_all(_ALL, few(_ALL)), ids=lambda p: p.stem)
def test_an_exported_model_is_the_same_graph(path):
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
        inputs = drawn_inputs(graph, rng)
        expected, found = evaluate(graph, inputs, before), evaluate(again, inputs, after)
        before, after = expected.states, found.states
        for name in graph.outputs:
            np.testing.assert_array_equal(found.outputs[name], expected.outputs[name])


@pytest.mark.slow
def test_sparse_weights_and_those_of_f16_take_no_more_of_the_file():
    for name in ("face_detection_full_range_sparse", "pose_detection", "hand_landmark_lite"):
        path = SHIPPED / f"{name}.tflite"
        graph = import_model(path)
        content = write_tflite(graph)
        again = graph_from_tflite(content, name)
        assert len(content) <= path.stat().st_size
        for marked in (graph, again):
            read = {n for node in marked.nodes for n in node.inputs if n is not None}
            assert sum(marked.tensors[n].sparse for n in read) == _SPARSE[name]


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("path", few_or_all(_ALL, few(_ALL)), ids=lambda p: p.stem)
def test_litert_runs_it(path, litert_session):
    graph = import_model(path)
    run = litert_session(write_tflite(graph))
    rng, states = np.random.default_rng(2), None
    for _ in range(3 if graph.states else 1):
        inputs = drawn_inputs(graph, rng)
        expected, found = evaluate(graph, inputs, states), run(inputs)
        states = expected.states
        assert tuple(found) == graph.outputs
        for name, y in found.items():
            need_close(path, y, expected.outputs[name])


@pytest.mark.peers
def test_a_signature_names_inputs_and_outputs():
    from ai_edge_litert.interpreter import Interpreter

    graph = import_model(SHIPPED / "face_detection_front.tflite")
    content = write_tflite(graph, {"notes": b"of the model"})
    runner = Interpreter(model_content=content).get_signature_runner("serving_default")
    assert set(runner.get_input_details()) == set(graph.inputs)
    assert set(runner.get_output_details()) == set(graph.outputs)
    model = tflite.Model.GetRootAs(content)
    assert model.Metadata(0).Name() == b"notes"
    assert model.Buffers(model.Metadata(0).Buffer()).DataAsNumpy().tobytes() == b"of the model"


def test_notes_and_labels_go_with_the_model(tmp_path):
    """Export preserves the file's metadata and its attached archive."""
    source, made = SHIPPED / "hand_landmark_lite.tflite", tmp_path / "made.tflite"
    graph, attached = import_model(source), read_attached(source)
    made.write_bytes(write_tflite(graph, attached.metadata, attached.files))
    assert read_notes(made) == read_notes(source) and read_notes(made).inputs[0].scale
    assert read_attached(made) == attached and attached.files["handedness.txt"]
    assert import_model(made).outputs == graph.outputs
    assert write_tflite(graph, attached.metadata, attached.files) == made.read_bytes()

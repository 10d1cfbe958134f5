"""Models exported to ONNX, re-imported, and run by ONNX Runtime; ONNX models as .tflite files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgekit.host.compiler.exporters import write_onnx, write_tflite
from edgekit.host.compiler.exporters.states import with_states_outside
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.export_models import SHIPPED, drawn_inputs, few, models, need_close
from tests.support.places import few_or_all


def _imported(path):
    """The graph of a model of fixed shapes, with its states as inputs and outputs."""
    try:
        return with_states_outside(import_model(path))
    except InputError as error:
        pytest.skip(str(error))


_ALL = [*models(".tflite"), *models(".onnx")]


@pytest.mark.slow
@pytest.mark.parametrize("path", few_or_all(_ALL, few(_ALL)), ids=lambda p: p.stem)
def test_an_exported_model_computes_the_same(path, tmp_path):
    """Bit-exact for float models; integer operators become floats between Q and DQ pairs."""
    graph = _imported(path)
    content = write_onnx(graph)
    assert content == write_onnx(import_model(path))  # equal graphs, equal bytes
    file = tmp_path / "again.onnx"
    file.write_bytes(content)
    again = import_model(file)
    assert (again.inputs, again.outputs) == (graph.inputs, graph.outputs)
    if any(t.is_quantized for t in graph.tensors.values()):
        return
    inputs = drawn_inputs(graph, np.random.default_rng(1))
    expected, found = evaluate(graph, inputs).outputs, evaluate(again, inputs).outputs
    for name in graph.outputs:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("path", few_or_all(_ALL, few(_ALL)), ids=lambda p: p.stem)
def test_onnx_runtime_runs_it(path, onnx_runtime, tmp_path):
    """8-bit models are compared with the reference of the Q/DQ graph, since ONNX's single rounding
    in floats differs from TFLite's integer arithmetic."""
    graph = _imported(path)
    content = write_onnx(graph)
    onnx.checker.check_model(content, full_check=True)
    inputs = drawn_inputs(graph, np.random.default_rng(2))
    found, quantized = (
        onnx_runtime(content, inputs),
        any(t.is_quantized for t in graph.tensors.values()),
    )
    if quantized:
        file = tmp_path / "again.onnx"
        file.write_bytes(content)
        graph = import_model(file)
    for name, value in evaluate(graph, inputs).outputs.items():
        if quantized and found[name].dtype.kind in "iu":
            away = np.abs(found[name].astype(int) - value)
            assert (away > 1).mean() < 0.005  # a few in a thousand classes, after 60 layers
        else:
            need_close(path, found[name], value)


@pytest.mark.slow
@pytest.mark.parametrize("path", models(".onnx"), ids=lambda p: p.stem)
def test_onnx_models_become_tflite_files(path):
    graph = _imported(path)
    again = graph_from_tflite(write_tflite(graph), path.stem)
    inputs = drawn_inputs(graph, np.random.default_rng(3))
    expected, found = evaluate(graph, inputs).outputs, evaluate(again, inputs).outputs
    for name in graph.outputs:
        np.testing.assert_array_equal(found[name], expected[name])


def test_transposes_are_only_where_layouts_meet():
    """At the input, and before the NHWC reshapes of four outputs."""
    content = write_onnx(import_model(SHIPPED / "face_detection_front.tflite"))
    kinds = [node.op_type for node in onnx.load_from_string(content).graph.node]
    assert kinds.count("Conv") == 37 and kinds.count("Transpose") == 5


def test_weights_of_f16_stay_so():
    path = SHIPPED / "hand_landmark_lite.tflite"
    assert len(write_onnx(import_model(path))) < 1.01 * path.stat().st_size

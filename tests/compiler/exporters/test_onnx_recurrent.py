"""Exported LSTM, GRU and RNN layers.

ONNX Runtime must give the same results for the exported file as for the original model, and
re-importing the file must give the same graph.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.host.compiler.exporters import write_onnx, write_tflite
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(6)
_TIME, _BATCH, _SIZE, _HIDDEN = 6, 3, 5, 7
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_VARIANTS = {
    "plain": {},
    "clip": {"clip": 0.3},
    "linear": {"linear_before_reset": 1},
    "functions": {
        "activations": ["HardSigmoid", "Relu", "Affine"],
        "activation_alpha": [0.3, 1.0],
        "activation_beta": [0.4, 0.0],
    },
}


def _drawn(*shape: int):
    return (_RNG.standard_normal(shape) * 0.4).astype(np.float32)


def _layer(kind: str, direction: str, variant: str, lengths: bool, folder: Path) -> Path:
    """A model of one recurrent layer with all operands and initial states."""
    ways, gates, more = (2 if direction == "bidirectional" else 1), _GATES[kind], {}
    more.update(_VARIANTS[variant])
    if variant == "functions":
        count = 3 if kind == "LSTM" else 2
        names = more["activations"][:count] if kind != "RNN" else ["Relu"]
        alphas = 0 if kind == "RNN" else (2 if kind == "LSTM" else 1)
        more = {"activations": names * ways}
        if alphas:
            both = _VARIANTS[variant]
            more["activation_alpha"] = both["activation_alpha"][:alphas] * ways
            more["activation_beta"] = both["activation_beta"][:alphas] * ways
    constants = {
        "w": _drawn(ways, gates * _HIDDEN, _SIZE), "r": _drawn(ways, gates * _HIDDEN, _HIDDEN),
        "b": _drawn(ways, 2 * gates * _HIDDEN), "p": _drawn(ways, 3 * _HIDDEN),
        "l": np.array([6, 2, 4], np.int32),
    }  # fmt: skip
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    ins = ["x", "w", "r", "b", "l" if lengths else "", *states, *["p"] * (kind == "LSTM")]
    outs = ["y", "yh", "yc"][: 1 + len(states)]
    given = [value("x", [_TIME, _BATCH, _SIZE])]
    given += [value(name, [ways, _BATCH, _HIDDEN]) for name in states]
    constants = {n: v for n, v in constants.items() if n in ins}
    made = node(kind, ins, outs, hidden_size=_HIDDEN, direction=direction, **more)
    return save(model([made], given, outs, constants), folder)


def _inputs(graph: Graph):
    return {name: _drawn(*graph.tensors[name].shape) for name in graph.inputs}


@pytest.mark.peers
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "lengths"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("kind", "variant"),
    [(k, v) for k in _GATES for v in _VARIANTS if k == "GRU" or v != "linear"],
)
def test_onnx_runtime_computes_the_same(kind, variant, direction, lengths, onnx_runtime, tmp_path):
    path = _layer(kind, direction, variant, lengths, tmp_path)
    graph = import_model(path)
    content, inputs = write_onnx(graph), _inputs(graph)
    onnx.checker.check_model(content, full_check=True)
    expected, found = onnx_runtime(path.read_bytes(), inputs), onnx_runtime(content, inputs)
    assert [*found] == [*expected]
    (tmp_path / "again.onnx").write_bytes(content)
    again = evaluate(import_model(tmp_path / "again.onnx"), inputs).outputs
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5)
        np.testing.assert_allclose(again[name], values, rtol=0, atol=1e-5)


def test_a_layer_is_one_operator_and_nothing_is_left_of_its_gates(tmp_path):
    graph = import_model(_layer("LSTM", "forward", "plain", False, tmp_path))
    assert any(isinstance(n.op, ops.FullyConnected) for n in graph.nodes)
    kinds = [n.op_type for n in onnx.load_from_string(write_onnx(graph)).graph.node]
    assert kinds.count("LSTM") == 1 and not {*kinds} & {"Gemm", "MatMul"}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", _GATES)
def test_a_layer_whose_rows_were_moved_behind_the_product_is_written(kind, batch, tmp_path):
    weights = {"w": _drawn(1, _GATES[kind] * _HIDDEN, _SIZE)}
    weights["r"] = _drawn(1, _GATES[kind] * _HIDDEN, _HIDDEN)
    steps = [
        node("Transpose", ["x"], ["rows"], perm=[1, 0, 2]),
        node(kind, ["rows", "w", "r"], ["y"], hidden_size=_HIDDEN),
    ]
    path = save(model(steps, [value("x", [batch, _TIME, _SIZE])], ["y"], weights), tmp_path)
    graph = run_passes(import_model(path))[0]
    product = next(n for n in graph.nodes if isinstance(n.op, ops.FullyConnected))
    readers = graph.consumers()[product.outputs[0]]
    assert not any(isinstance(n.op, ops.Recurrent) for n in readers)
    (tmp_path / "again.onnx").write_bytes(write_onnx(graph))
    inputs = _inputs(graph)
    expected = evaluate(graph, inputs).outputs["y"]
    found = evaluate(import_model(tmp_path / "again.onnx"), inputs).outputs["y"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_product_that_reads_several_axes_as_one_is_written(tmp_path):
    path = _layer("LSTM", "forward", "plain", False, tmp_path)
    graph = import_model(path)
    product = next(n for n in graph.nodes if isinstance(n.op, ops.FullyConnected))
    layer = next(n for n in graph.nodes if isinstance(n.op, ops.Lstm))
    gates, x = graph.tensors[product.outputs[0]], graph.tensors[product.inputs[0]]
    rows = replace(gates, name="rows", shape=(_TIME * _BATCH, gates.shape[-1]))
    tensors = {**graph.tensors, "rows": rows, x.name: replace(x, shape=(_TIME * _BATCH, _SIZE, 1))}
    flat = replace(product, op=replace(product.op, keep_dims=False), outputs=("rows",))
    back = Node("back", ops.Reshape(gates.shape), ("rows",), (gates.name,))
    at = graph.nodes.index(product)
    nodes = (*graph.nodes[:at], flat, back, *graph.nodes[at + 1 :])
    assert layer.inputs[0] == gates.name
    changed = replace(graph, nodes=nodes, tensors=tensors)
    inputs = _inputs(changed)
    (tmp_path / "again.onnx").write_bytes(write_onnx(changed))
    expected = evaluate(changed, inputs).outputs
    found = evaluate(import_model(tmp_path / "again.onnx"), inputs).outputs
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5)


def test_gates_that_something_else_reads_are_refused(tmp_path):
    graph = import_model(_layer("GRU", "forward", "plain", False, tmp_path))
    layer = next(n for n in graph.nodes if isinstance(n.op, ops.Gru))
    graph = replace(graph, outputs=(*graph.outputs, layer.inputs[0]))
    with pytest.raises(InputError, match=r"\(gru\) cannot be written as ONNX.*gates computed from"):
        write_onnx(graph)


def test_a_tflite_file_has_none_and_the_message_says_where_to(tmp_path):
    graph = import_model(_layer("LSTM", "forward", "plain", False, tmp_path))
    with pytest.raises(InputError, match=r"\(lstm\) cannot.*write an \.onnx file"):
        write_tflite(graph)

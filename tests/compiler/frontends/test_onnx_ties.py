"""Quantized operators whose scales make ties, against ONNX Runtime: the same stored values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from tests.support.onnx_models import model, node, save, value

pytestmark = pytest.mark.engines

_SHAPE = (16, 64)
_OF_TWO = {"QLinearAdd", "QLinearMul", "QLinearConcat", "Add", "Mul", "Sub", "Div", "Concat"}
_IN_ONE = {  # the operands of ONNX Runtime's own operators
    "QLinearAdd": ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"],
    "QLinearConcat": ["sy", "zy", "a", "sa", "za", "b", "sb", "zb"],
    "QLinearLeakyRelu": ["a", "sa", "za", "sy", "zy"],
    "QLinearMul": ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"],
    "QLinearSigmoid": ["a", "sa", "za", "sy", "zy"],
}
_ATTRIBUTES = {
    "AveragePool": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "Concat": {"axis": 0},
    "LeakyRelu": {"alpha": 0.25},
    "QLinearConcat": {"axis": 0},
    "QLinearLeakyRelu": {"alpha": 0.25},
}
_KINDS = (
    *_IN_ONE, "Add", "AveragePool", "Concat", "Div", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Sub",
)  # fmt: skip


def _numbers(rng, dtype, kind):
    """Scales and zero points, by the names of inputs."""
    unit = np.float32(rng.choice([1 / 64, 0.01, 1 / 255, rng.uniform(0.005, 0.1)]))
    ends = np.iinfo(dtype)
    numbers = {}
    for name in "aby":
        factor = rng.integers(1, 9) if rng.random() < 0.5 else 2.0 ** rng.integers(-2, 3)
        numbers[f"s{name}"] = unit * np.float32(factor)
        numbers[f"z{name}"] = np.array(rng.integers(ends.min, ends.max + 1), dtype)
    if kind.endswith("Mul"):
        numbers["sy"] = numbers["sa"] * numbers["sb"] * np.float32(rng.choice([32, 64, 100]))
    if kind == "AveragePool" and rng.random() < 0.7:  # as the tools quantize it
        numbers |= {"sy": numbers["sa"], "zy": numbers["za"]}
    return {name: np.asarray(v) for name, v in numbers.items()}


def _model_of(kind, rng):
    """Quantize, the operator, dequantize; its inputs."""
    dtype = np.uint8 if rng.random() < 0.5 else np.int8
    numbers, ends = _numbers(rng, dtype, kind), np.iinfo(dtype)
    names = "ab" if kind in _OF_TWO else "a"
    inputs, nodes = {}, []
    for name in names:
        shape = _SHAPE[1:] if name == "b" and rng.random() < 0.3 else _SHAPE
        shape = _SHAPE if kind.endswith("Concat") else shape
        shape = (1, 4, *_SHAPE) if kind == "AveragePool" else shape
        stored = rng.integers(ends.min, ends.max + 1, shape) - int(numbers[f"z{name}"])
        inputs[f"r{name}"] = (stored * float(numbers[f"s{name}"])).astype(np.float32)
        nodes.append(node("QuantizeLinear", [f"r{name}", f"s{name}", f"z{name}"], [name]))
    attributes = _ATTRIBUTES.get(kind, {})
    if kind in _IN_ONE:
        nodes.append(node(kind, _IN_ONE[kind], ["y"], domain="com.microsoft", **attributes))
    else:
        nodes += [
            node("DequantizeLinear", [name, f"s{name}", f"z{name}"], [f"d{name}"]) for name in names
        ]
        nodes.append(node(kind, [f"d{name}" for name in names], ["real"], **attributes))
        nodes.append(node("QuantizeLinear", ["real", "sy", "zy"], ["y"]))
    nodes.append(node("DequantizeLinear", ["y", "sy", "zy"], ["out"]))
    proto = model(nodes, [value(n, v.shape) for n, v in inputs.items()], ["out"], numbers)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto, inputs, float(numbers["sy"])


def _differing(kind, seed, tmp_path):
    """How many stored values differ from ONNX Runtime's, which has one operator for a sum or a
    product between quantized tensors; it computes values of s8 as u8 in files with Q and DQ."""
    import onnxruntime

    proto, inputs, scale = _model_of(kind, np.random.default_rng(seed))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, inputs)
    graph = run_passes(integer_form(import_model(save(proto, tmp_path))))[0]
    assert not any(t.dtype.value == "f32" for t in graph.tensors.values() if t.name == "real")
    got = evaluate(graph, inputs).outputs["out"]
    return np.count_nonzero(np.rint((got - want) / scale))


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_stored_values_are_those_of_onnx_runtime(kind, tmp_path):
    assert [_differing(kind, seed, tmp_path) for seed in range(12)] == [0] * 12


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("order", ["ca", "ac"])
def test_a_constant_of_bytes_joins_quantized_values(dtype, order, tmp_path):
    """As `edgekit quantize` writes the class token of a vision transformer."""
    import onnxruntime

    rng = np.random.default_rng(5)
    numbers = {"s": np.float32(0.02), "z": np.array(7, dtype)}
    numbers["c"] = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (1, 5)).astype(dtype)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        node("Concat", list(order), ["y"], axis=0),
        node("DequantizeLinear", ["y", "s", "z"], ["out"]),
    ]
    proto = model(nodes, [value("x", (3, 5))], ["out"], numbers)
    inputs = {"x": rng.standard_normal((3, 5)).astype(np.float32)}
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)
    graph = run_passes(integer_form(import_model(save(proto, tmp_path))))[0]
    np.testing.assert_array_equal(evaluate(graph, inputs).outputs["out"], want)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("order", ["ca", "ac"])
def test_an_input_of_bytes_joins_quantized_values(dtype, order, tmp_path):
    """As a wake word's 8-bit samples join those it kept."""
    import onnxruntime

    rng = np.random.default_rng(6)
    numbers = {"s": np.float32(0.02), "z": np.array(7, dtype)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        node("Concat", list(order), ["y"], axis=0),
        node("DequantizeLinear", ["y", "s", "z"], ["out"]),
    ]
    given = [value("x", (3, 5)), value("c", (1, 5), np.dtype(dtype))]
    proto = model(nodes, given, ["out"], numbers)
    stored = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (1, 5)).astype(dtype)
    inputs = {"x": rng.standard_normal((3, 5)).astype(np.float32), "c": stored}
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)
    graph = run_passes(integer_form(import_model(save(proto, tmp_path))))[0]
    np.testing.assert_array_equal(evaluate(graph, inputs).outputs["out"], want)

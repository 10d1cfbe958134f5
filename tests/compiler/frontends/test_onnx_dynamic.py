"""Products of dynamically quantized activations, as written by ONNX Runtime's tools.

They become 8-bit layers, and match the composition of ONNX's operators exactly.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.ops import DynamicFullyConnected
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(31)
_N = 17


def _codes(low, high, k, n=_N):
    return _RNG.integers(low, high + 1, (k, n))


def _scales(count=_N):
    return _RNG.uniform(0.002, 0.02, count).astype(np.float32)


# Weights [k, n], their scales and zero points: forms `quantize_dynamic` writes, and valid variants.
_ONE = np.float32(0.01)
_WEIGHTS = {
    "s8": (_codes(-127, 127, 23).astype(np.int8), _ONE, np.int8(0)),
    "s8-all": (_codes(-128, 127, 23).astype(np.int8), _ONE, None),
    "s8-zero": (_codes(-128, 127, 23).astype(np.int8), _ONE, np.int8(-9)),
    "s8-channels": (_codes(-127, 127, 23).astype(np.int8), _scales(), np.zeros(_N, np.int8)),
    "s8-points": (
        _codes(-99, 99, 23).astype(np.int8), _scales(), _RNG.integers(-20, 20, _N).astype(np.int8),
    ),
    "u8": (_codes(0, 255, 23).astype(np.uint8), _ONE, np.uint8(128)),
    "u8-zero": (_codes(0, 255, 61).astype(np.uint8), _ONE, np.uint8(61)),
    "u8-none": (_codes(0, 255, 3).astype(np.uint8), _ONE, None),
    "u8-points": (
        _codes(0, 255, 23).astype(np.uint8), _scales(), _RNG.integers(1, 250, _N).astype(np.uint8),
    ),
    "u8-one-scale": (
        _codes(0, 255, 61).astype(np.uint8), _ONE, _RNG.integers(0, 256, _N).astype(np.uint8),
    ),
}  # fmt: skip


def _net(weights, shape, bias=None, swapped=False, outputs=("y",)):
    w, scale, zero = weights
    end = "p" if bias is not None else "y"
    point = ["wz"] if zero is not None else []
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", *point], ["sums"]),
        node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        node("Mul", ["ws", "s"] if swapped else ["s", "ws"], ["factor"]),
        node("Mul", ["factor", "real"] if swapped else ["real", "factor"], [end]),
    ]
    constants = {"w": w, "ws": np.asarray(scale)}
    constants |= {} if zero is None else {"wz": np.asarray(zero)}
    if bias is not None:
        constants["b"] = bias
        nodes.append(node("Add", ["b", "p"] if swapped else ["p", "b"], ["y"]))
    return model(nodes, [value("x", shape)], outputs, constants)


def _wanted(x, weights, bias=None):
    """ONNX's definitions, in NumPy."""
    w, scale, zero = weights
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    step = (high - low) / np.float32(255) if high > low else np.float32(1)
    point = np.clip(np.rint(-low / step), 0, 255)
    stored = np.clip(np.rint(x / step) + point, 0, 255)
    real = w.astype(np.int64) - (0 if zero is None else np.asarray(zero, np.int64))
    sums = (stored - point).astype(np.int64) @ real
    y = sums.astype(np.float32) * (step * scale)
    return y if bias is None else y + bias


def _layers(graph):
    return sum(isinstance(n.op, DynamicFullyConnected) for n in graph.nodes)


@pytest.mark.parametrize("shape", [(1,), (5,), (2, 7), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("name", _WEIGHTS)
def test_a_layer_of_bytes_is_what_onnx_says(name, shape, tmp_path):
    weights = _WEIGHTS[name]
    whole = (*shape, len(weights[0]))
    bias = _RNG.standard_normal(_N).astype(np.float32) if len(shape) > 1 else None
    proto = _net(weights, whole, bias, swapped=len(shape) == 2)
    graph = run_passes(import_model(save(proto, tmp_path)))[0]
    assert {n.op.kind for n in graph.nodes} <= {"dynamic_fully_connected", "reshape"}
    for low, high in ((-1, 1), (0.25, 3), (-7, -2), (0, 0)):
        x = _RNG.uniform(low, high, whole).astype(np.float32)
        want = _wanted(x, weights, bias)
        got = evaluate(graph, {"x": x}).outputs["y"]
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s8-channels", "u8-zero", "u8-points"])
def test_a_release_holds_a_byte_per_weight(name, tmp_path):
    stored, scale, zero = _WEIGHTS[name]
    stored = np.tile(stored, (8, 1))
    weights, k = (stored, scale, zero), len(stored)
    bias = _RNG.standard_normal(_N).astype(np.float32)
    graph = run_passes(import_model(save(_net(weights, [3, k], bias), tmp_path)))[0]
    inputs = {"x": _RNG.uniform(-2, 3, (3, k)).astype(np.float32)}
    total = len(lower(graph, load_board("rpi3")).lowered.weights)
    assert stored.size <= total < 1.5 * stored.size
    local = build(graph, load_board("local"), tmp_path / "local")
    check(graph, run_here(local, inputs), inputs)


def test_other_forms_stay_as_they_are_written(tmp_path):
    """The integer sums are an output themselves."""
    x = _RNG.uniform(-1, 1, (3, 23)).astype(np.float32)
    proto = _net(_WEIGHTS["s8"], [3, 23], outputs=("y", "real"))
    graph = import_model(save(proto, tmp_path))
    assert not _layers(graph)
    real, y = (evaluate(graph, {"x": x}).outputs[name] for name in ("real", "y"))
    assert np.array_equal(real, np.rint(real))
    np.testing.assert_allclose(y, _wanted(x, _WEIGHTS["s8"]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["s8", "s8-channels", "u8-zero", "u8-points", "u8-none"])
def test_products_of_the_same_quantized_values_are_layers_of_bytes(name, bias, tmp_path):
    """In the form ONNX Runtime's optimizer writes."""
    weights = _WEIGHTS[name]
    w, scale, zero = weights
    constants = {"w": w, "ws": np.asarray(scale)}
    constants |= {} if zero is None else {"wz": np.asarray(zero)}
    end = ["wz" if zero is not None else ""]
    terms = _RNG.standard_normal(_N).astype(np.float32) if bias else None
    if terms is not None:
        constants["b"] = terms
        end.append("b")
    ins = ["q", "w", "s", "ws", "z", *end]
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulIntegerToFloat", ins, ["y"], domain="com.microsoft"),
        node("MatMulIntegerToFloat", ins, ["again"], domain="com.microsoft"),
    ]
    shape = [2, 3, len(w)]
    proto = model(nodes, [value("x", shape)], ["y", "again"], constants)
    graph = run_passes(import_model(save(proto, tmp_path)))[0]
    assert _layers(graph) == 2 and len(graph.nodes) <= 5
    x = _RNG.uniform(-2, 3, shape).astype(np.float32)
    want, made = _wanted(x, weights, terms), evaluate(graph, {"x": x}).outputs
    for got in made.values():
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.engines
@pytest.mark.parametrize("name", _WEIGHTS)
def test_onnx_runtime_says_the_same(name, tmp_path):
    import onnxruntime

    stored, *terms = _WEIGHTS[name]
    if stored.dtype == np.int8:
        stored = stored // 2  # ONNX Runtime's 8-bit product pairs saturate without VNNI
    k = len(stored)
    path = save(_net((stored, *terms), [2, 5, k]), tmp_path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = _RNG.uniform(-2, 1, (2, 5, k)).astype(np.float32)
    (want,) = session.run(None, {"x": x})
    got = evaluate(import_model(path), {"x": x}).outputs["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())

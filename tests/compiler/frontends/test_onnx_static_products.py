"""QLinearMatMul as written by ONNX Runtime's `quantize_static`.

It becomes an 8-bit layer that differs from ONNX's definition by at most one step.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.ops import FullyConnected
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(37)
_K, _N, _OUT = 61, 33, 7
_SCALES = (np.float32(0.02), np.float32(0.05), np.float32(0.1))


def _weights(kind, k, n, per_channel):
    """Quantized values [k, n], scales, and zero points."""
    count = n if per_channel else 1
    scale = _RNG.uniform(0.004, 0.01, count).astype(np.float32)
    stored = _RNG.integers(-127, 128, (k, n)) + (0 if kind == "s8" else 128)
    dtype = np.int8 if kind == "s8" else np.uint8
    zero = np.full(count, 0 if kind == "s8" else 128, dtype)
    if kind == "u8-apart":  # would not fit into s8 without a zero point
        zero = _RNG.integers(20, 90, count).astype(dtype)
    shaped = (scale, zero) if per_channel else (scale[0], zero[0])
    return (stored.astype(dtype), *map(np.asarray, shaped))


def _net(activations, layers, shape):
    """Two consecutive products, from f32 to f32."""
    kind, zeros = (np.uint8, (121, 130, 7)) if activations == "u8" else (np.int8, (-7, 2, 99))
    constants = {}
    for i, (scale, zero) in enumerate(zip(_SCALES, zeros, strict=True)):
        constants |= {f"s{i}": np.asarray(scale), f"z{i}": np.asarray(zero, kind)}
    nodes = [node("QuantizeLinear", ["x", "s0", "z0"], ["q0"])]
    for i, (stored, scale, zero) in enumerate(layers):
        constants |= {f"w{i}": stored, f"ws{i}": scale, f"wz{i}": zero}
        ins = [f"q{i}", f"s{i}", f"z{i}", f"w{i}", f"ws{i}", f"wz{i}", f"s{i + 1}", f"z{i + 1}"]
        nodes.append(node("QLinearMatMul", ins, [f"q{i + 1}"]))
    nodes.append(node("DequantizeLinear", ["q2", "s2", "z2"], ["y"]))
    return model(nodes, [value("x", shape)], ["y"], constants), np.iinfo(kind), zeros


def _wanted(x, layers, info, zeros):
    stored = np.clip(np.rint(x / _SCALES[0]) + zeros[0], info.min, info.max)
    for i, (w, scale, zero) in enumerate(layers):
        sums = (stored - zeros[i]).astype(np.int64) @ (w.astype(np.int64) - zero)
        factor = _SCALES[i] * scale.astype(np.float64) / _SCALES[i + 1]
        stored = np.clip(np.rint(sums * factor) + zeros[i + 1], info.min, info.max)
    return (stored - zeros[2]) * _SCALES[2]


@pytest.mark.parametrize("shape", [(1, _K), (2, 5, _K)], ids=str)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weights", ["s8", "u8", "u8-apart"])
@pytest.mark.parametrize("activations", ["s8", "u8"])
def test_products_of_quantized_values_are_layers_of_bytes(
    activations, weights, per_channel, shape, tmp_path
):
    layers = [_weights(weights, *size, per_channel) for size in ((_K, _N), (_N, _OUT))]
    proto, info, zeros = _net(activations, layers, shape)
    graph = run_passes(integer_form(import_model(save(proto, tmp_path))))[0]
    found = [n for n in graph.nodes if isinstance(n.op, FullyConnected)]
    assert [graph.tensors[n.inputs[1]].dtype for n in found] == [DType.I8, DType.I8]
    x = _RNG.uniform(-2, 2, shape).astype(np.float32)
    got = evaluate(graph, {"x": x}).outputs["y"]
    # One differently rounded value of the first product changes the second by at most one step:
    # weights are at most 2.35, a step of the first is 0.05, of the second 0.1.
    np.testing.assert_allclose(got, _wanted(x, layers, info, zeros), atol=1.01 * _SCALES[2])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
def test_a_gemm_with_a_bias_is_a_layer_of_bytes(transposed, per_channel, tmp_path):
    stored, scale, zero = _weights("s8", _K, _N, per_channel)
    bias = _RNG.integers(-9999, 9999, _N).astype(np.int32)
    w = np.ascontiguousarray(stored.T) if transposed else stored
    constants = {"s0": _SCALES[0], "z0": np.uint8(121), "s1": _SCALES[1], "z1": np.uint8(130)}
    constants = {k: np.asarray(v) for k, v in constants.items()}
    constants |= {"w": w, "ws": scale, "wz": zero, "b": bias}
    ins = ["q0", "s0", "z0", "w", "ws", "wz", "b", "s1", "z1"]
    nodes = [
        node("QuantizeLinear", ["x", "s0", "z0"], ["q0"]),
        node("QGemm", ins, ["q1"], domain="com.microsoft", transB=transposed),
        node("DequantizeLinear", ["q1", "s1", "z1"], ["y"]),
    ]
    proto = model(nodes, [value("x", (5, _K))], ["y"], constants)
    graph = run_passes(integer_form(import_model(save(proto, tmp_path))))[0]
    (layer,) = [n for n in graph.nodes if isinstance(n.op, FullyConnected)]
    assert graph.tensors[layer.inputs[1]].dtype is DType.I8
    x = _RNG.uniform(-2, 2, (5, _K)).astype(np.float32)
    read = np.clip(np.rint(x / _SCALES[0]) + 121, 0, 255) - 121
    sums = read.astype(np.int64) @ stored.astype(np.int64) + bias
    want = np.clip(np.rint(sums * (_SCALES[0] * scale.astype(np.float64) / _SCALES[1])), -130, 125)
    got = evaluate(graph, {"x": x}).outputs["y"]
    np.testing.assert_allclose(got, want * _SCALES[1], atol=1.01 * _SCALES[1])


def test_layers_around_products_of_computed_quantized_values_are_of_bytes(tmp_path):
    """x · w, times its own transpose, times w, as in attention."""
    w, scale, zero = _weights("s8", _K, _N, True)
    constants = {"s0": _SCALES[0], "z0": np.uint8(121), "s1": _SCALES[2], "z1": np.uint8(130)}
    constants |= {"s2": np.float32(1.5), "z2": np.uint8(99), "s3": np.float32(3)}
    constants = {k: np.asarray(v) for k, v in constants.items()} | {"w": w, "ws": scale, "wz": zero}
    one, two, by = ["s1", "z1"], ["s2", "z2"], ["w", "ws", "wz"]
    nodes = [
        node("QuantizeLinear", ["x", "s0", "z0"], ["q0"]),
        node("QLinearMatMul", ["q0", "s0", "z0", *by, *one], ["q1"]),
        node("Transpose", ["q1"], ["t"], perm=[1, 0]),
        node("QLinearMatMul", ["t", *one, "q1", *one, *two], ["q2"]),
        node("QLinearMatMul", ["q0", "s0", "z0", *by, *one], ["q3"]),
        node("QLinearMatMul", ["q3", *one, "q2", *two, "s3", "z2"], ["q4"]),
        node("DequantizeLinear", ["q1", *one], ["first"]),
        node("DequantizeLinear", ["q2", *two], ["second"]),
        node("DequantizeLinear", ["q4", "s3", "z2"], ["y"]),
    ]
    proto = model(nodes, [value("x", (13, _K))], ["first", "second", "y"], constants)
    graph = run_passes(integer_form(import_model(save(proto, tmp_path))))[0]
    found = [n for n in graph.nodes if isinstance(n.op, FullyConnected)]
    assert {graph.tensors[n.inputs[1]].dtype for n in found} == {DType.I8}
    x = _RNG.uniform(-2, 2, (13, _K)).astype(np.float32)

    def quantized(values, step, zero):
        return np.clip(np.rint(values / step), -zero, 255 - zero) * float(step)

    # Compute each product from the values read; otherwise rounding differences would propagate.
    got = evaluate(graph, {"x": x}).outputs
    first, second = got["first"].astype(np.float64), got["second"].astype(np.float64)
    read = quantized(x, _SCALES[0], 121)
    for name, step, want in (
        ("first", _SCALES[2], quantized(read @ (w * scale.astype(np.float64)), _SCALES[2], 130)),
        ("second", 1.5, quantized(first.T @ first, 1.5, 99)),
        ("y", 3, quantized(first @ second, 3, 99)),
    ):
        np.testing.assert_allclose(got[name], want, atol=1.01 * step, err_msg=name)


@pytest.mark.parametrize("kind", ["u8", "u8-apart"])
def test_a_release_holds_a_byte_per_weight(kind, tmp_path):
    layers = [_weights(kind, *size, True) for size in ((_K, 16 * _N), (16 * _N, _OUT))]
    proto = _net("u8", layers, (3, _K))[0]
    graph = run_passes(integer_form(import_model(save(proto, tmp_path))))[0]
    size = sum(w.size for w, _, _ in layers)
    assert size <= len(lower(graph, load_board("rpi3")).lowered.weights) < 2 * size
    inputs = {"x": _RNG.uniform(-2, 2, (3, _K)).astype(np.float32)}
    check(graph, run_here(build(graph, load_board("local"), tmp_path), inputs), inputs)

"""QLinearConv as written by ONNX Runtime's `quantize_static`.

It becomes an 8-bit convolution that differs from ONNX's definition by at most one step.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.ops import Cast, Conv2D, DepthwiseConv2D
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.onnx_models import model, node, save, value
from tests.support.places import few_or_all

_IN, _OUT = (np.float32(0.02), np.uint8(121)), (np.float32(0.25), np.uint8(130))
_KINDS = {
    "s8": (np.int8, 0, 0),
    "u8": (np.uint8, 128, 128),
    "u8-apart": (np.uint8, 20, 240),  # minus these, values do not fit into s8
}


@pytest.fixture
def rng():
    """Each test draws the same numbers, whichever tests ran before."""
    return np.random.default_rng(41)


def _weights(rng, kind, shape, per_channel):
    dtype, low, high = _KINDS[kind]
    info, count = np.iinfo(dtype), shape[0] if per_channel else 1
    scale = rng.uniform(0.004, 0.01, count).astype(np.float32)
    zero = np.linspace(low, high, count).astype(dtype) if count > 1 else np.full(1, low, dtype)
    # 7-bit s8: ONNX Runtime's 8-bit product pairs saturate on x86 without VNNI.
    ends = (-63, 63) if dtype is np.int8 else (info.min, info.max)
    stored = rng.integers(*ends, shape, endpoint=True).astype(dtype)
    return stored, *(v if per_channel else v.reshape(()) for v in (scale, zero))


def _net(rng, weights, channels, groups, shape=None, pads=(1, 0, 1, 1), strides=(1, 2)):
    stored, scale, zero = weights
    bias = rng.integers(-3000, 3000, len(stored)).astype(np.int32)
    constants = {"xs": _IN[0], "xz": _IN[1], "ys": _OUT[0], "yz": _OUT[1]}
    constants = {k: np.asarray(v) for k, v in constants.items()}
    constants |= {"w": stored, "ws": scale, "wz": zero, "b": bias}
    ins = ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("QLinearConv", ins, ["c"], group=groups, pads=pads, strides=strides),
        node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    proto = model(nodes, [value("x", shape or (1, channels, 9, 11))], ["y"], constants)
    return proto, bias


_CASES = [
    (kind, per_channel, *form)
    for kind in _KINDS
    for per_channel in (False, True)
    for form in (((13, 6, 3, 3), 1), ((5, 70, 1, 1), 1), ((6, 1, 3, 3), 6), ((8, 3, 3, 3), 2))
]


@pytest.mark.slow
@pytest.mark.engines
@pytest.mark.parametrize(
    ("kind", "per_channel", "shape", "groups"), few_or_all(_CASES, _CASES[::3])
)
def test_a_convolution_of_bytes_is_what_onnx_runtime_says(
    rng, kind, per_channel, shape, groups, tmp_path
):
    import onnxruntime

    channels = shape[1] * groups
    proto, _ = _net(rng, _weights(rng, kind, shape, per_channel), channels, groups)
    path = save(proto, tmp_path)
    graph = run_passes(integer_form(import_model(path)))[0]
    found = [n for n in graph.nodes if isinstance(n.op, Conv2D | DepthwiseConv2D)]
    quantized = {graph.tensors[n.inputs[1]].dtype for n in found}
    # A depthwise convolution with several weight zero points stays in f32.
    apart = kind == "u8-apart" and per_channel and isinstance(found[0].op, DepthwiseConv2D)
    assert quantized == {DType.F32 if apart else DType.I8}
    inputs = {"x": rng.uniform(-2, 2, (1, channels, 9, 11)).astype(np.float32)}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, inputs)
    got = evaluate(graph, inputs).outputs["y"]
    assert np.ptp(want) > 20 * _OUT[0]
    np.testing.assert_allclose(got, want, atol=1.01 * _OUT[0])
    local = build(graph, load_board("local"), tmp_path / "local")
    check(graph, run_here(local, inputs), inputs)


@pytest.mark.engines
@pytest.mark.parametrize("known", [True, False])
def test_a_convolution_of_volumes_is_what_onnx_runtime_says(rng, known, tmp_path):
    """The quantization of x is known by its Q, or the graph's input is of bytes."""
    import onnxruntime

    weights, shape = _weights(rng, "u8", (5, 3, 2, 3, 3), True), (1, 3, 5, 9, 11)
    proto, _ = _net(rng, weights, 3, 1, shape, pads=[1, 0, 1, 1, 0, 1], strides=[1, 2, 1])
    inputs = {"x": rng.uniform(0, 2, shape).astype(np.float32)}
    if not known:
        proto.graph.input[0].CopyFrom(value("q", shape, "u8"))
        del proto.graph.node[0]
        inputs = {"q": rng.integers(0, 256, shape).astype(np.uint8)}
    path = save(proto, tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, inputs)
    found = evaluate(integer_form(import_model(path)), inputs).outputs["y"]
    assert np.ptp(want) > 20 * _OUT[0]
    np.testing.assert_allclose(found, want, atol=1.01 * _OUT[0])


@pytest.mark.parametrize("kind", _KINDS)
def test_a_release_holds_a_byte_per_weight(rng, kind, tmp_path):
    weights = _weights(rng, kind, (64, 32, 3, 3), True)
    proto, bias = _net(rng, weights, 32, 1)
    graph = run_passes(integer_form(import_model(save(proto, tmp_path))))[0]
    size = weights[0].size
    assert size <= len(lower(graph, load_board("rpi3")).lowered.weights) < 1.2 * size
    x = rng.uniform(-2, 2, (1, 32, 9, 11)).astype(np.float32)
    got = evaluate(graph, {"x": x}).outputs["y"]
    # The center window of the first row, by ONNX's definition.
    stored = np.clip(np.rint(x[0] / _IN[0]) + 121, 0, 255) - 121
    real = weights[0].astype(np.int64) - weights[2].reshape(-1, 1, 1, 1)
    sums = np.tensordot(real, stored[:, :3, 2:5], 3) + bias
    want = np.clip(np.rint(sums * (_IN[0] * weights[1] / _OUT[0])), -130, 125) * _OUT[0]
    np.testing.assert_allclose(got[0, :, 1, 1], want, atol=1.01 * _OUT[0])


@pytest.mark.engines
def test_quantized_values_that_only_move_between_layers_stay_quantized_values(rng, tmp_path):
    """Pool, transpose and reshape of quantized values, written by the tools without conversions."""
    import onnxruntime

    weights = _weights(rng, "u8", (6, 3, 3, 3), False)
    proto, _ = _net(rng, weights, 3, 1)
    dense = _weights(rng, "u8-apart", (48, 7), False)
    constants = dict(zip(("dw", "ds", "dz"), map(np.asarray, dense), strict=True))
    constants |= {"shape": np.array([1, -1], np.int64), "axes": np.array([0], np.int64)}
    constants["es"] = step = np.asarray(np.float32(4))
    nodes = [
        *(n for n in proto.graph.node if n.op_type != "DequantizeLinear"),
        node("MaxPool", ["c"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Transpose", ["m"], ["t"], perm=[0, 2, 3, 1]),
        node("Squeeze", ["t", "axes"], ["u"]),
        node("Reshape", ["u", "shape"], ["r"]),
        node("QLinearMatMul", ["r", "ys", "yz", "dw", "ds", "dz", "es", "yz"], ["d"]),
        node("DequantizeLinear", ["d", "es", "yz"], ["y"]),
    ]
    kept = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    path = save(model(nodes, [value("x", (1, 3, 9, 11))], ["y"], kept | constants), tmp_path)
    graph = run_passes(integer_form(import_model(path)))[0]
    dtypes = {graph.tensors[name].dtype for n in graph.nodes[1:-1] for name in n.outputs}
    assert dtypes == {DType.I8} and isinstance(graph.nodes[-1].op, Cast)
    inputs = {"x": rng.uniform(-2, 2, (1, 3, 9, 11)).astype(np.float32)}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, inputs)
    assert np.ptp(want) > 5 * step and np.abs(want).max() < 120 * step
    got = evaluate(graph, inputs).outputs["y"]
    np.testing.assert_allclose(got, want, atol=1.01 * step)


@pytest.mark.engines
@pytest.mark.parametrize("moved", [False, True], ids=["first", "transposed"])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_a_model_cut_to_its_stored_values_computes_in_integers(rng, kind, moved, tmp_path):
    """Without QuantizeLinear at its start and DequantizeLinear at its end."""
    import onnxruntime

    shape = (1, 9, 11, 3) if moved else (1, 3, 9, 11)
    stored, scale, zero = _weights(rng, "s8", (5, 3, 3, 3), True)
    points = [np.array(int(v) - 128 * (kind == "int8"), kind) for v in (_IN[1], _OUT[1])]
    constants = {"xs": _IN[0], "xz": points[0], "ys": _OUT[0], "yz": points[1]}
    constants = {k: np.asarray(v) for k, v in constants.items()}
    ins = ["t" if moved else "x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    nodes = [node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if moved else []
    nodes.append(node("QLinearConv", ins, ["y"]))
    constants |= {"w": stored, "ws": scale, "wz": zero}
    proto = model(nodes, [value("x", shape, np.dtype(kind))], [], constants)
    proto.graph.output.append(value("y", (1, 5, 7, 9), np.dtype(kind)))
    path = save(proto, tmp_path)
    graph = run_passes(integer_form(import_model(path)))[0]
    (conv,) = (n for n in graph.nodes if isinstance(n.op, Conv2D))
    assert [graph.tensors[name].dtype for name in conv.inputs[:2]] == [DType.I8, DType.I8]
    ends = np.iinfo(kind)
    inputs = {"x": rng.integers(ends.min, ends.max, shape, kind, endpoint=True)}
    (want,) = onnxruntime.InferenceSession(path).run(None, inputs)
    found = evaluate(graph, inputs).outputs["y"]
    assert found.dtype == want.dtype and np.ptp(want.astype(int)) > 20
    np.testing.assert_allclose(found.astype(int), want.astype(int), atol=1)

"""Convolutions of dynamically quantized activations, as written by ONNX Runtime's tools.

They become 8-bit layers, and match the composition of ONNX's operators exactly.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.onnx.operators import onnx_operators
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.ops import DynamicConv2D
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(32)
_C, _OC = 5, 12
_ONE = np.float32(0.01)
_SCALES = _RNG.uniform(0.002, 0.02, _OC).astype(np.float32)


def _codes(dtype, *window):
    info = np.iinfo(dtype)
    return _RNG.integers(info.min, info.max + 1, (_OC, _C, *window)).astype(dtype)


# Weights, their scales and zero points, the input, and attributes.
_CASES = {
    "plain": (_codes(np.uint8, 3, 3), _ONE, np.uint8(117), (1, _C, 9, 8), {}),
    "signed": (_codes(np.int8, 3, 3), _ONE, np.int8(0), (2, _C, 9, 8), {"pads": [1, 1, 1, 1]}),
    "no-zero": (_codes(np.int8, 1, 1), _ONE, None, (1, _C, 7, 5), {}),
    "pads": (_codes(np.uint8, 2, 3), _ONE, np.uint8(128), (2, _C, 6, 7), {"pads": [0, 2, 1, 0]}),
    "strides": (
        _codes(np.uint8, 3, 3), _ONE, np.uint8(0), (1, _C, 11, 10),
        {"strides": [2, 1], "auto_pad": "SAME_UPPER"},
    ),
    "dilations": (
        _codes(np.int8, 3, 3), _ONE, np.int8(-9), (1, _C, 12, 9),
        {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
    ),
    "points": (
        _codes(np.uint8, 3, 3), _SCALES.reshape(1, -1, 1, 1),
        _RNG.integers(0, 256, _OC).astype(np.uint8), (1, _C, 9, 8), {"pads": [1, 1, 1, 1]},
    ),
    "row": (_codes(np.uint8, 5), _ONE, np.uint8(90), (2, _C, 23), {"pads": [2, 2]}),
    "row-strides": (
        _codes(np.int8, 3), _SCALES.reshape(-1, 1), np.zeros(_OC, np.int8), (1, _C, 20),
        {"strides": [2], "pads": [0, 1]},
    ),
}  # fmt: skip


def _net(case, bias=None, reshaped=False, outputs=("y",), group=1):
    w, scale, zero, shape, attributes = case
    point = [] if zero is None else ["wz"]
    end = "y" if bias is None else "p"
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("ConvInteger", ["q", "w", "z", *point], ["sums"], group=group, **attributes),
        node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["factor"]),
        node("Mul", ["real", "factor"], [end]),
    ]
    constants = {"w": w, "ws": np.asarray(scale)}
    constants |= {} if zero is None else {"wz": np.asarray(zero)}
    if bias is not None:
        ones = (1,) * (w.ndim - 2)
        constants["b"] = bias if reshaped else bias.reshape(1, -1, *ones)
        if reshaped:
            constants["shape"] = np.array([1, -1, *ones])
            nodes.append(node("Reshape", ["b", "shape"], ["wide"]))
        nodes.append(node("Add", ["p", "wide" if reshaped else "b"], ["y"]))
    return model(nodes, [value("x", shape)], outputs, constants)


def _padding(case, sizes):
    """Padding before and after each axis."""
    attributes = case[4]
    if "auto_pad" in attributes:
        pads = []
        for size, taps, step in zip(sizes, case[0].shape[2:], attributes["strides"], strict=True):
            total = max((-(-size // step) - 1) * step + taps - size, 0)
            pads.append((total // 2, total - total // 2))
        return pads
    pads = attributes.get("pads", [0] * (2 * len(sizes)))
    return list(zip(pads[: len(sizes)], pads[len(sizes) :], strict=True))


def _wanted(x, case, bias=None):
    """ONNX's definitions, in NumPy."""
    w, scale, zero, _, attributes = case
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    step = (high - low) / np.float32(255) if high > low else np.float32(1)
    point = np.clip(np.rint(-low / step), 0, 255)
    stored = np.clip(np.rint(x / step) + point, 0, 255) - point
    axes = x.ndim - 2
    stored = np.pad(stored, [(0, 0), (0, 0), *_padding(case, x.shape[2:])]).astype(np.int64)
    points = np.zeros(1, np.int64) if zero is None else np.asarray(zero, np.int64).reshape(-1)
    real = w.astype(np.int64) - points.reshape(-1, *(1,) * (w.ndim - 1))
    strides = attributes.get("strides", [1] * axes)
    dilations = attributes.get("dilations", [1] * axes)
    spans = [(taps - 1) * d + 1 for taps, d in zip(w.shape[2:], dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(stored, spans, tuple(range(2, x.ndim)))
    picked = (slice(None), slice(None), *(slice(None, None, s) for s in strides))
    windows = windows[(*picked, *(slice(None, None, d) for d in dilations))]
    kept = "abcdef"[:axes]
    taps = "uvw"[:axes]
    sums = np.einsum(f"ni{kept}{taps},oi{taps}->no{kept}", windows, real)
    y = sums.astype(np.float32) * (step * scale)
    return y if bias is None else y + bias.reshape(1, -1, *(1,) * axes)


def _convolutions(graph):
    return sum(isinstance(n.op, DynamicConv2D) for n in graph.nodes)


@pytest.mark.parametrize("bias", [None, "constant", "reshaped"])
@pytest.mark.parametrize("name", _CASES)
def test_a_convolution_of_bytes_is_what_onnx_says(name, bias, tmp_path):
    case = _CASES[name]
    terms = None if bias is None else _RNG.standard_normal(_OC).astype(np.float32)
    proto = _net(case, terms, bias == "reshaped")
    graph = run_passes(import_model(save(proto, tmp_path)))[0]
    assert _convolutions(graph) == 1
    assert {n.op.kind for n in graph.nodes} <= {"dynamic_conv2d", "reshape", "transpose"}
    for low, high in ((-1, 1), (0.25, 3), (-7, -2), (0, 0)):
        x = _RNG.uniform(low, high, case[3]).astype(np.float32)
        want = _wanted(x, case, terms)
        got = evaluate(graph, {"x": x}).outputs["y"]
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["signed", "pads", "points", "row"])
def test_a_release_holds_a_byte_per_weight(name, tmp_path):
    stored, *rest = _CASES[name]
    times = 8
    stored = np.tile(stored, (1, times, *(1,) * (stored.ndim - 2)))
    case = (stored, *rest[:2], (rest[2][0], _C * times, *rest[2][2:]), rest[3])
    terms = _RNG.standard_normal(_OC).astype(np.float32)
    graph = run_passes(import_model(save(_net(case, terms), tmp_path)))[0]
    inputs = {"x": _RNG.uniform(-2, 3, case[3]).astype(np.float32)}
    total = len(lower(graph, load_board("rpi3")).lowered.weights)
    assert stored.size <= total < 1.5 * stored.size
    check(graph, run_here(build(graph, load_board("local"), tmp_path / "local"), inputs), inputs)


def test_other_forms_stay_as_they_are_written(tmp_path):
    """The integer sums are an output, the convolution is grouped, or scales follow another axis."""
    case = _CASES["signed"]
    x = _RNG.uniform(-1, 1, case[3]).astype(np.float32)
    graph = import_model(save(_net(case, outputs=("y", "real")), tmp_path))
    real, y = (evaluate(graph, {"x": x}).outputs[name] for name in ("real", "y"))
    assert not _convolutions(graph) and np.array_equal(real, np.rint(real))
    np.testing.assert_allclose(y, _wanted(x, case), rtol=1e-6, atol=1e-6)
    each = (case[0][:, :1], *case[1:3], (1, 4, 9, 8), {})
    graph = import_model(save(_net(each, group=4), tmp_path))
    assert not _convolutions(graph) and graph.tensors["y"].shape == (1, _OC, 7, 6)
    along = (case[0], np.full(8, 0.01, np.float32), *case[2:])
    graph = import_model(save(_net(along), tmp_path))
    assert not _convolutions(graph)
    np.testing.assert_allclose(
        evaluate(graph, {"x": x}).outputs["y"], _wanted(x, case), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    "attributes",
    [{"strides": [1, 2, 1], "pads": [1, 0, 1, 0, 1, 1]}, {"dilations": [2, 1, 1]}],
    ids=["strides", "dilations"],
)
def test_a_convolution_of_volumes_is_what_onnx_says(attributes, tmp_path):
    case = (_codes(np.uint8, 2, 3, 3), _ONE, np.uint8(99), (2, _C, 5, 7, 6), attributes)
    x = _RNG.uniform(-2, 1, case[3]).astype(np.float32)
    want = _wanted(x, case)
    graph = run_passes(import_model(save(_net(case), tmp_path)))[0]
    found = evaluate(graph, {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize(("groups", "depth", "window"), [(2, 40, (5, 3)), (1, 60, (31,))])
def test_sums_beyond_what_floats_hold_are_exact(groups, depth, window, tmp_path):
    """A sum of up to 255 · 255 · 600 in each of several groups."""
    axes, shape = len(window), (1, groups * depth, *(n + 2 for n in window))
    w = _RNG.integers(200, 256, (groups, depth, *window)).astype(np.uint8)
    x = _RNG.integers(200, 256, shape).astype(np.uint8)
    nodes = [node("ConvInteger", ["x", "w"], ["y"], group=groups)]
    graph = import_model(save(model(nodes, [value("x", shape, "u8")], ["y"], {"w": w}), tmp_path))
    found = evaluate(run_passes(graph)[0], {"x": x}).outputs["y"]
    parts = x.astype(np.int64).reshape(groups, depth, *shape[2:])
    windows = np.lib.stride_tricks.sliding_window_view(parts, window, tuple(range(2, 2 + axes)))
    want = (np.moveaxis(windows, 1, axes + 1) * w[:, *(None,) * axes].astype(np.int64)).sum(
        axis=tuple(range(axes + 1, 2 * axes + 2))
    )
    assert want.max() > 1 << 24
    assert np.array_equal(found[0], want)


@pytest.mark.parametrize("kind", ["SAME_UPPER", "SAME_LOWER"])
def test_windows_that_skip_pixels_are_of_codes_of_the_whole_image(kind, tmp_path):
    """ONNX Runtime's automatic padding is negative there; the range is of all pixels."""
    import onnxruntime

    attributes = {"strides": [9, 4], "auto_pad": kind}
    case = (_codes(np.uint8, 2, 1), _ONE, np.uint8(99), (1, _C, 9, 6), attributes)
    path = save(_net(case), tmp_path)
    x = _RNG.uniform(-1, 1, case[3]).astype(np.float32)
    x[0, 0, 0, 0] = 9
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    found = evaluate(run_passes(import_model(path))[0], {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ((*_CASES["plain"][:3], (1, _C + 1, 9, 8), {}), "expected weights of shape"),
        ((*_CASES["plain"][:3], (1, _C, 9), {}), "expected a tensor of rank 4"),
        ((*_CASES["plain"][:4], {"kernel_shape": [5, 5]}), "expected f32 and a window of [3, 3]"),
        ((*_CASES["plain"][:4], {"strides": [0, 1]}), "expected positive windows, strides"),
        ((*_CASES["plain"][:3], (1, _C, 2, 2), {}), "that holds one window of 3x3, found 2x2"),
    ],
)
def test_what_does_not_fit_is_one_line(case, said, tmp_path):
    with pytest.raises(InputError) as error:
        import_model(save(_net(case), tmp_path))
    assert said in str(error.value) and "(ConvInteger sums)" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_cannot_name_the_operator(tmp_path):
    proto = _net(_CASES["plain"])
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "DynamicConv", "edgekit"
    proto.opset_import.add(domain="edgekit", version=1)
    with pytest.raises(InputError, match="not supported"):
        import_model(save(proto, tmp_path))
    assert not any(name.startswith("edgekit") for name in onnx_operators())


@pytest.mark.engines
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("name", ["plain", "signed", "pads", "strides", "dilations", "row"])
def test_onnx_runtime_says_the_same(name, kind, tmp_path):
    """On a model of two convolutions that ONNX Runtime's own tool quantized."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    stored, _, _, shape, attributes = _CASES[name]
    w = (stored.astype(np.float32) - np.float32(stored.mean())) * np.float32(0.01)
    more = _RNG.standard_normal((7, _OC, *stored.shape[2:])).astype(np.float32)
    b = _RNG.standard_normal(_OC).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w", "b"], ["h"], **attributes),
        node("Relu", ["h"], ["r"]),
        node("Conv", ["r", "more"], ["y"]),
    ]
    proto = model(nodes, [value("x", shape)], ["y"], {"w": w, "b": b, "more": more})
    floats = save(proto, tmp_path)
    path = tmp_path / "dynamic.onnx"
    quantize_dynamic(floats, path, weight_type=getattr(QuantType, kind))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = _RNG.uniform(-2, 1, shape).astype(np.float32)
    (want,) = session.run(None, {"x": x})
    graph = import_model(path)
    assert _convolutions(graph) == 2
    got = evaluate(graph, {"x": x}).outputs["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())

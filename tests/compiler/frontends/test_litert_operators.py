"""The reference of each operator against LiteRT's, on small files with odd sizes and scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate

pytestmark = pytest.mark.peers

_RANGES = {"INT8": (-128, 127), "UINT8": (0, 255)}


class Case:
    """Draws random tensors and collects the contents of a one-operator file."""

    def __init__(self, files, seed: int, type: str) -> None:
        self.files, self.type = files, type
        self.rng = np.random.default_rng(seed)
        self.tensors = []

    def quantized(self, name: str, shape, scale=None, data=None, zero=None):
        low, high = _RANGES[self.type]
        scale = float(np.float32(scale or self.rng.uniform(0.01, 0.2)))
        zero = int(self.rng.integers(low, high)) if zero is None else zero
        self.tensors.append(self.files.tensor(name, shape, self.type, data, [scale], [zero]))
        return scale

    def activation(self, name: str, shape, scale=None, zero=None):
        if self.type in ("FLOAT32", "HYBRID"):
            self.tensors.append(self.files.tensor(name, shape))
            return 1.0
        return self.quantized(name, shape, scale, zero=zero)

    def weights(self, shape, axis: int, x_scale: float, per_channel: bool):
        """Add weights `w`, and a bias `b` in the units of the sums."""
        rng, channels = self.rng, shape[axis]
        if self.type == "FLOAT32":
            w = rng.normal(0, 1, shape).astype(np.float32)
            self.constant("w", w)
            self.constant("b", rng.normal(0, 1, channels).astype(np.float32))
            return
        scale = rng.uniform(0.005, 0.05, channels if per_channel else 1).astype(np.float32)
        if self.type == "HYBRID":
            w, zero = rng.integers(-127, 128, shape).astype(np.int8), [0] * scale.size
            self.tensors.append(self.files.tensor("w", shape, "INT8", w, scale, zero, axis))
            self.constant("b", rng.normal(0, 1, channels).astype(np.float32))
            return
        if self.type == "INT8":
            w = rng.integers(-127, 128, shape).astype(np.int8)
            zero = [0] * scale.size
        else:
            w, zero = rng.integers(0, 256, shape).astype(np.uint8), [int(rng.integers(90, 160))]
        file_tensor = self.files.tensor
        self.tensors.append(file_tensor("w", shape, self.type, w, scale, zero, axis))
        bias = rng.integers(-5000, 5000, channels).astype(np.int32)
        bias_scale = np.float32(x_scale) * scale
        self.tensors.append(
            file_tensor("b", [channels], "INT32", bias, bias_scale, [0] * scale.size)
        )

    def constant(self, name: str, value) -> None:
        type_name = {"float32": "FLOAT32", "int32": "INT32"}[value.dtype.name]
        self.tensors.append(self.files.tensor(name, value.shape, type_name, value))

    def file(self, code: str, inputs, options="", fields=None, outputs=("y",)) -> bytes:
        op = self.files.op(code, inputs, list(outputs), options, fields or {})
        known = {t.name for t in self.tensors if t.data is None}
        ends = [i for i in inputs if i in known]
        return self.files.model(self.files.graph(self.tensors, [op], ends, list(outputs)))


def conv(
    case: Case,
    stride=(1, 1),
    dilation=1,
    padding=0,
    activation=0,
    per_channel=True,
    hybrid_channels=False,
):
    x = case.activation("x", [2, 7, 6, 5])
    case.weights([4, 3, 2, 5], 0, x, (per_channel and case.type == "INT8") or hybrid_channels)
    case.activation("y", [1, 1, 1, 4], 1.3)
    fields = {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1]}
    fields |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
    fields |= {"FusedActivationFunction": activation}
    return case.file("CONV_2D", ["x", "w", "b"], "Conv2DOptions", fields)


def depthwise(
    case: Case,
    multiplier=1,
    stride=2,
    dilation=1,
    padding=0,
    activation=0,
    hybrid_channels=False,
    channels=5,
):
    x = case.activation("x", [2, 7, 6, channels])
    per_channel = case.type == "INT8" or hybrid_channels
    case.weights([1, 3, 2, channels * multiplier], 3, x, per_channel)
    case.activation("y", [1, 1, 1, channels * multiplier], 0.6)
    fields = {"Padding": padding, "StrideH": stride, "StrideW": stride}
    fields |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
    fields |= {"FusedActivationFunction": activation, "DepthMultiplier": multiplier}
    return case.file("DEPTHWISE_CONV_2D", ["x", "w", "b"], "DepthwiseConv2DOptions", fields)


def transpose_conv(case: Case, padding=0, stride=2, size=(9, 8), channels=True):
    x = case.activation("x", [2, 5, 4, 3])
    case.weights([4, 3, 2, 3], 0, x, case.type in ("INT8", "HYBRID") and channels)
    case.constant("s", np.array([2, *size, 4], np.int32))
    case.activation("y", [2, *size, 4], 1.1)
    fields = {"Padding": padding, "StrideH": stride, "StrideW": stride}
    return case.file("TRANSPOSE_CONV", ["s", "w", "x", "b"], "TransposeConvOptions", fields)


def dense(case: Case, activation=0, keep=False, per_channel=False, asymmetric=False):
    x = case.activation("x", [2, 3, 17])
    case.weights([11, 17], 0, x, per_channel)
    case.activation("y", [2, 3, 11] if keep else [6, 11], 0.7)
    fields = {"FusedActivationFunction": activation, "KeepNumDims": keep}
    fields["AsymmetricQuantizeInputs"] = asymmetric
    return case.file("FULLY_CONNECTED", ["x", "w", "b"], "FullyConnectedOptions", fields)


def binary(case: Case, code: str, b_shape=(1, 3, 4, 5), activation=0):
    case.activation("a", [2, 3, 4, 5])
    case.activation("b", b_shape)
    case.activation("y", [2, 3, 4, 5])
    fields = {"FusedActivationFunction": activation}
    return case.file(code, ["a", "b"], f"{code.title()}Options", fields)


def pool(case: Case, code: str, window=(3, 2), stride=2, padding=0, activation=0):
    scale = 0.05
    case.activation("x", [2, 7, 6, 5], scale, zero=3)
    case.activation("y", [1, 1, 1, 5], scale, zero=3)
    fields = {"Padding": padding, "StrideH": stride, "StrideW": stride}
    fields |= {"FilterHeight": window[0], "FilterWidth": window[1]}
    fields |= {"FusedActivationFunction": activation}
    return case.file(code, ["x"], "Pool2DOptions", fields)


def mean(case: Case, axes=(1, 2), keep=True):
    case.activation("x", [2, 7, 6, 5])
    case.constant("a", np.array(axes, np.int32))
    kept = [1 if i in axes else d for i, d in enumerate([2, 7, 6, 5])]
    case.activation("y", kept if keep else [d for d in kept if d > 1])
    return case.file("MEAN", ["x", "a"], "ReducerOptions", {"KeepDims": keep})


def unit_output(case: Case, code: str, options="", fields=None, scale=None):
    """Operators whose 8-bit result is a fraction: scale 1/256, zero point at the minimum."""
    case.activation("x", [3, 41], scale)
    case.activation("y", [3, 41], 1 / 256, zero=0 if case.type == "UINT8" else -128)
    return case.file(code, ["x"], options, fields)


def clamp(case: Case, code: str):
    case.activation("x", [3, 41])
    case.activation("y", [3, 41])
    return case.file(code, ["x"])


def hard_swish(case: Case):
    case.activation("x", [3, 41])
    case.activation("y", [3, 41])
    return case.file("HARD_SWISH", ["x"], "HardSwishOptions")


def resize(case: Case, size=(5, 11), align=False, half=False):
    case.activation("x", [2, 7, 6, 3], 0.1, zero=1)
    case.constant("s", np.array(size, np.int32))
    case.activation("y", [2, *size, 3], 0.1, zero=1)
    fields = {"AlignCorners": align, "HalfPixelCenters": half}
    return case.file("RESIZE_BILINEAR", ["x", "s"], "ResizeBilinearOptions", fields)


def quantize(case: Case, target: str):
    case.activation("x", [3, 41])
    low, high = _RANGES[target]
    zero = int(case.rng.integers(low, high))
    scale = float(np.float32(case.rng.uniform(0.01, 0.2)))
    case.tensors.append(case.files.tensor("y", [3, 41], target, None, [scale], [zero]))
    return case.file("QUANTIZE", ["x"], "QuantizeOptions")


def dequantize(case: Case):
    case.activation("x", [3, 41])
    case.tensors.append(case.files.tensor("y", [3, 41]))
    return case.file("DEQUANTIZE", ["x"], "DequantizeOptions")


def concat(case: Case, same: bool):
    scale, zero = (0.1, 2) if same else (None, None)
    case.activation("a", [2, 3, 4], scale, zero)
    case.activation("b", [2, 5, 4], scale, zero)
    case.activation("y", [2, 8, 4], scale, zero)
    return case.file("CONCATENATION", ["a", "b"], "ConcatenationOptions", {"Axis": -2})


def moved(case: Case, code: str, shape, out, constants, options="", fields=None, order=None):
    """Operators that only move data: scale and zero point are preserved."""
    case.activation("x", shape, 0.1, 2)
    for name, value in constants.items():
        case.constant(name, np.array(value, np.int32))
    case.activation("y", out, 0.1, 2)
    return case.file(code, order or ["x", *constants], options, fields)


@dataclass(frozen=True)
class Row:
    name: str
    build: Callable[[Case], bytes]
    types: tuple[str, ...] = ("FLOAT32", "INT8", "UINT8")


_SOFTMAX = "SoftmaxOptions", {"Beta": 1.0}

ALL = ("FLOAT32", "INT8", "UINT8")
ROWS = [
    Row("conv", conv),
    Row("conv-stride-relu6", lambda c: conv(c, (2, 3), activation=3)),
    Row("conv-valid-relu", lambda c: conv(c, padding=1, activation=1)),
    Row("conv-dilated", lambda c: conv(c, dilation=2, activation=2)),
    Row("conv-per-tensor", lambda c: conv(c, per_channel=False)),
    Row("depthwise", depthwise),
    Row("depthwise-multiplier", lambda c: depthwise(c, 3, 1, activation=3)),
    Row("depthwise-dilated", lambda c: depthwise(c, 1, 1, 2, activation=1)),
    Row("depthwise-valid", lambda c: depthwise(c, 2, 2, padding=1)),
    Row("transpose-conv", lambda c: transpose_conv(c, 0, 2, (9, 8))),
    Row("transpose-conv-same", lambda c: transpose_conv(c, 0, 2, (10, 7))),
    Row("transpose-conv-valid", lambda c: transpose_conv(c, 1, 2, (11, 8))),
    Row("transpose-conv-hybrid", lambda c: transpose_conv(c, 0, 2, (10, 7)), ("HYBRID",)),
    Row("transpose-conv-hybrid-one", lambda c: transpose_conv(c, channels=False), ("HYBRID",)),
    Row("dense", dense),
    Row("dense-relu", lambda c: dense(c, 1)),
    Row("dense-keep", lambda c: dense(c, 3, keep=True)),
    Row("conv-hybrid", lambda c: conv(c, (2, 1), activation=1, per_channel=False), ("HYBRID",)),
    Row("conv-hybrid-per-channel", lambda c: conv(c, hybrid_channels=True), ("HYBRID",)),
    Row("depthwise-hybrid", lambda c: depthwise(c, hybrid_channels=True), ("HYBRID",)),
    Row("depthwise-hybrid-one", lambda c: depthwise(c, channels=1), ("HYBRID",)),
    Row("dense-hybrid", dense, ("HYBRID",)),
    Row("dense-hybrid-asymmetric", lambda c: dense(c, asymmetric=True), ("HYBRID",)),
    Row("dense-hybrid-per-channel", lambda c: dense(c, per_channel=True), ("HYBRID",)),
    Row("dense-per-channel", lambda c: dense(c, per_channel=True), ("INT8",)),
    Row("add", lambda c: binary(c, "ADD", (2, 3, 4, 5))),
    Row("add-broadcast", lambda c: binary(c, "ADD", (1, 1, 1, 5), 1)),
    Row("mul", lambda c: binary(c, "MUL", (2, 3, 4, 5))),
    Row("mul-broadcast", lambda c: binary(c, "MUL", (2, 1, 1, 5), 3)),
    Row("average-pool", lambda c: pool(c, "AVERAGE_POOL_2D")),
    Row("average-pool-valid", lambda c: pool(c, "AVERAGE_POOL_2D", (2, 3), 1, 1, 3)),
    Row("max-pool", lambda c: pool(c, "MAX_POOL_2D")),
    Row("max-pool-valid", lambda c: pool(c, "MAX_POOL_2D", (2, 3), 1, 1, 1)),
    Row("mean", mean),
    Row("mean-dropped", lambda c: mean(c, (1, 2), False)),
    Row("mean-one-axis", lambda c: mean(c, (3,))),
    Row("softmax", lambda c: unit_output(c, "SOFTMAX", "SoftmaxOptions", {"Beta": 1.0})),
    Row("softmax-beta", lambda c: unit_output(c, "SOFTMAX", "SoftmaxOptions", {"Beta": 0.3})),
    Row("softmax-fine", lambda c: unit_output(c, "SOFTMAX", "SoftmaxOptions", {"Beta": 1.0}, 1e-3)),
    *(
        Row(f"softmax-{s:g}", lambda c, s=s: unit_output(c, "SOFTMAX", *_SOFTMAX, s))
        for s in (9.0, 17.0, 40.0, 1e36)
    ),
    Row("logistic", lambda c: unit_output(c, "LOGISTIC")),
    Row("logistic-fine", lambda c: unit_output(c, "LOGISTIC", scale=0.004)),
    Row("relu", lambda c: clamp(c, "RELU")),
    Row("relu6", lambda c: clamp(c, "RELU6")),
    Row("relu-n1-to-1", lambda c: clamp(c, "RELU_N1_TO_1")),
    Row("hard-swish", hard_swish, ("FLOAT32",)),
    Row("resize", resize),
    Row("resize-half", lambda c: resize(c, (14, 4), half=True)),
    Row("resize-align", lambda c: resize(c, (9, 13), align=True)),
    Row("quantize-s8", lambda c: quantize(c, "INT8")),
    Row("quantize-u8", lambda c: quantize(c, "UINT8")),
    Row("dequantize", dequantize, ("INT8", "UINT8")),
    Row("concat", lambda c: concat(c, True)),
    Row("concat-rescaled", lambda c: concat(c, False), ("UINT8",)),
    Row(
        "pad",
        lambda c: moved(c, "PAD", [2, 3, 4], [4, 3, 7], {"p": [[1, 1], [0, 0], [2, 1]]}),
    ),
    Row(
        "transpose",
        lambda c: moved(c, "TRANSPOSE", [2, 3, 4], [4, 2, 3], {"p": [2, 0, 1]}),
    ),
    Row("reshape", lambda c: moved(c, "RESHAPE", [2, 3, 4], [4, 6], {"s": [4, -1]})),
    Row("slice", lambda c: moved(c, "SLICE", [5, 6], [2, 5], {"b": [1, 1], "s": [2, -1]})),
    Row(
        "strided-slice",
        lambda c: moved(
            c,
            "STRIDED_SLICE",
            [5, 6, 7],
            [2, 7],
            {"b": [1, 4, 0], "e": [5, 5, -1], "s": [2, 1, 1]},
            "StridedSliceOptions",
            {"EndMask": 4, "ShrinkAxisMask": 2},
        ),
    ),
    Row(
        "strided-slice-backwards",
        lambda c: moved(
            c,
            "STRIDED_SLICE",
            [5, 6],
            [3, 6],
            {"b": [-1, 0], "e": [0, 0], "s": [-2, 1]},
            "StridedSliceOptions",
            {"BeginMask": 2, "EndMask": 3},
        ),
    ),
    Row(
        "depth-to-space",
        lambda c: moved(
            c, "DEPTH_TO_SPACE", [1, 3, 2, 8], [1, 6, 4, 2], {}, "DepthToSpaceOptions",
            {"BlockSize": 2},
        ),
    ),
    Row(
        "space-to-batch",
        lambda c: moved(
            c, "SPACE_TO_BATCH_ND", [2, 5, 4, 3], [12, 3, 2, 3],
            {"b": [2, 3], "p": [[0, 1], [1, 1]]},
        ),
    ),
    Row(
        "batch-to-space",
        lambda c: moved(
            c, "BATCH_TO_SPACE_ND", [12, 3, 2, 3], [2, 5, 4, 3],
            {"b": [2, 3], "p": [[0, 1], [1, 1]]},
        ),
    ),
    Row("squeeze", lambda c: moved(c, "SQUEEZE", [1, 3, 1], [3, 1], {}, "SqueezeOptions",
                                   {"SqueezeDims": [0]})),
    Row("expand-dims", lambda c: moved(c, "EXPAND_DIMS", [2, 3], [2, 1, 3], {"a": [1]})),
]  # fmt: skip


def _inputs(graph, seed: int):
    rng = np.random.default_rng(seed)
    values = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.dtype.is_quantized:
            low, high = np.iinfo(tensor.dtype.numpy).min, np.iinfo(tensor.dtype.numpy).max
            drawn = rng.integers(low, high + 1, tensor.shape)
        else:
            drawn = rng.normal(0, 3, tensor.shape)
        values[name] = drawn.astype(tensor.dtype.numpy)
    return values


def contents(files) -> list[bytes]:
    return [row.build(Case(files, 0, type)) for row in ROWS for type in row.types]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("row", "type"), [pytest.param(r, t, id=f"{r.name}-{t}") for r in ROWS for t in r.types]
)
def test_agrees_with_litert(files, litert, row, type, seed):
    content = row.build(Case(files, seed, type))
    graph = graph_from_tflite(content, "case")
    inputs = _inputs(graph, seed)
    expected = litert(content, inputs)
    found = evaluate(graph, inputs).outputs
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        if value.dtype == np.float32:
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * np.abs(value).max())
        else:
            np.testing.assert_array_equal(found[name], value)

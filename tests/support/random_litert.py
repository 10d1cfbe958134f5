"""Random networks in TensorFlow Lite: branches, joins, residuals, odd strides and dilations, in
several number types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgekit.host.compiler.exporters.tflite.file import SubgraphRecord, pack
from edgekit.host.compiler.ir.types import DType, Shape
from tests.support.litert_net import Net, Value

TYPES = ("f32", "f16", "u8", "s8", "s16", "dynamic")
_SAME, _VALID = 0, 1
_CLAMPS = (0, 0, 1, 3)  # none, RELU, RELU6
# Options of functions of one operand.
_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.2}),
    "GELU": ("GeluOptions", {"Approximate": False}),
}
# LiteRT has no reference kernel for ELU.
_FLOATS = (
    "RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU", "GELU",
    "ABS", "NEG", "EXP", "SQRT", "SQUARE", "SIN", "COS",
)  # fmt: skip
_FUNCTIONS = {
    "u8": ("RELU", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU"),
    "s8": ("RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU",
           "GELU", "ABS", "EXP"),
    "s16": ("RELU", "RELU6", "LOGISTIC", "TANH", "LEAKY_RELU", "ABS", "EXP"),
}  # fmt: skip


def _window(net: Net, x: Value, windows: Sequence[int], dilates: bool) -> dict[str, Any] | None:
    """A window with its strides and dilations and the size it leaves; None if that is nothing."""
    window = [net.draw(*windows) for _ in range(2)]
    dilations = [net.draw(1, 1, 2, 3) if dilates and k > 1 else 1 for k in window]
    strides = [net.draw(1, 1, 1, 2, 3) for _ in range(2)]
    padding = net.draw(_SAME, _VALID)
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    room = [n if padding == _SAME else n - r + 1 for n, r in zip(x.shape[1:3], reach, strict=True)]
    if min(room) < 1:
        return None
    sizes = [-(-n // s) for n, s in zip(room, strides, strict=True)]
    fields = {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1]}
    if dilates:
        fields |= {"DilationHFactor": dilations[0], "DilationWFactor": dilations[1]}
    return {"window": window, "sizes": sizes, "fields": fields}


def _conv(net: Net, x: Value) -> Value:
    found = _window(net, x, (1, 1, 2, 3, 3, 3, 4, 5, 7), True)
    if found is None:
        return _function(net, x)
    inputs, fused = x.shape[3], net.draw(*_CLAMPS)
    fields, options = found["fields"] | {"FusedActivationFunction": fused}, "Conv2DOptions"
    if net.chance(0.4):
        factor = net.draw(1, 1, 2, 3)
        code, options, outputs = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", inputs * factor
        weights = net.product(x, (1, *found["window"], outputs), 3, outputs)
        fields["DepthMultiplier"] = factor
    else:
        code, outputs = "CONV_2D", net.draw(4, 6, 8, 16, 17, 24)
        weights = net.product(x, (outputs, *found["window"], inputs), 0, outputs)
    shape = (1, *found["sizes"], outputs)
    return net.value(code, [x.number, *weights], shape, net.quant(), options, **fields)


def _conv_transpose(net: Net, x: Value) -> Value:
    if max(x.shape[1:3]) > 12 or net.kind == "dynamic":
        return _pool(net, x)
    window = [net.draw(2, 3, 4, 5) for _ in range(2)]
    strides, padding = [net.draw(1, 2, 2, 3) for _ in range(2)], net.draw(_SAME, _VALID)
    sizes = [
        n * s + (max(k - s, 0) if padding == _VALID else 0)
        for n, s, k in zip(x.shape[1:3], strides, window, strict=True)
    ]
    outputs = net.draw(4, 5, 8)
    shape = (1, *sizes, outputs)
    weights = net.product(x, (outputs, *window, x.shape[3]), 0, outputs, net.chance(0.3))
    operands = [net.integers(shape), weights[0], x.number, *weights[1:]]
    fields = {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1]}
    return net.value(
        "TRANSPOSE_CONV", operands, shape, net.quant(), "TransposeConvOptions", **fields
    )


def _pool(net: Net, x: Value) -> Value:
    found = _window(net, x, (2, 2, 3, 5), False)
    if found is None:
        return _function(net, x)
    fields = found["fields"] | {
        "FilterHeight": found["window"][0],
        "FilterWidth": found["window"][1],
        "FusedActivationFunction": net.draw(*_CLAMPS),
    }
    code, shape = net.draw("MAX_POOL_2D", "AVERAGE_POOL_2D"), (1, *found["sizes"], x.shape[3])
    return net.value(code, [x.number], shape, x.quant, "Pool2DOptions", **fields)


def _function(net: Net, x: Value) -> Value:
    code = net.draw(*_FUNCTIONS.get(net.kind, _FLOATS))
    if code == "SQRT":
        x = net.value("ABS", [x.number], x.shape, x.quant)
    quant = net.quant()
    if code == "LOGISTIC":
        quant = net.fixed(1 / 256, 1 / 32768)
    elif code == "TANH":
        quant = net.fixed(1 / 128, 1 / 32768, signed=True)
    options, fields = _OPTIONS.get(code, ("", {}))
    return net.value(code, [x.number], x.shape, quant, options, **fields)


def _scaled(net: Net, x: Value) -> Value:
    """An operation with a constant: a scalar, one value per channel, or a full tensor."""
    shape = net.draw((), x.shape[-1:], x.shape)
    data = net.rng.uniform(0.4, 1.6, shape) * net.draw(1, 1, -1)
    if net.chance(0.2) and net.kind != "s16":
        alpha = net.constant(net.rng.uniform(0, 0.5, (1, 1, x.shape[3])))
        return net.value("PRELU", [x.number, alpha], x.shape, net.quant())
    operands = [x.number, net.constant(data)]
    code = net.draw("ADD", "SUB", "MUL", *(() if net.quantized else ("DIV", "MAXIMUM")))
    if net.chance(0.3) and code != "DIV":
        operands.reverse()
    return _of_two(net, code, operands, x.shape)


def _of_two(net: Net, code: str, operands: Sequence[int], shape: Shape) -> Value:
    if code in ("MAXIMUM", "MINIMUM"):
        quant = net.tensors[operands[0]].quant
        return net.value(code, operands, shape, quant, "MaximumMinimumOptions")
    fields: dict[str, Any] = {"FusedActivationFunction": net.draw(*_CLAMPS)}
    if code in ("ADD", "SUB"):
        fields["PotScaleInt16"] = False
    return net.value(code, operands, shape, net.quant(), f"{code.capitalize()}Options", **fields)


def _gated(net: Net, x: Value) -> Value:
    """A gate per channel, as in squeeze-and-excitation."""
    channels = x.shape[3]
    axes, small = net.integers([1, 2]), (1, 1, 1, channels)
    mean = net.value("MEAN", [x.number, axes], small, net.quant(), "ReducerOptions", KeepDims=True)
    fields = {"Padding": _VALID, "StrideH": 1, "StrideW": 1}
    fields |= {"DilationHFactor": 1, "DilationWFactor": 1}
    for outputs, fused in ((4, 1), (channels, 0)):
        weights = net.product(mean, (outputs, 1, 1, mean.shape[3]), 0, outputs)
        mean = net.value(
            "CONV_2D", [mean.number, *weights], (1, 1, 1, outputs), net.quant(), "Conv2DOptions",
            FusedActivationFunction=fused, **fields,
        )  # fmt: skip
    gate = net.value("LOGISTIC", [mean.number], mean.shape, net.fixed(1 / 256, 1 / 32768))
    operands = net.draw((x.number, gate.number), (gate.number, x.number))
    return _of_two(net, "MUL", operands, x.shape)


def _resized(net: Net, x: Value) -> Value:
    if max(x.shape[1:3]) > 14:
        return _pool(net, x)
    sizes = [int(n * net.draw(1, 2, 2, 1.5, 3)) for n in x.shape[1:3]]
    code, name = net.draw(
        ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
        ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
    )
    aligned, half = net.draw((False, False), (True, False), (False, True))
    shape = (1, *sizes, x.shape[3])
    return net.value(
        code, [x.number, net.integers(sizes)], shape, x.quant, name,
        AlignCorners=aligned, HalfPixelCenters=half,
    )  # fmt: skip


def _padded(net: Net, x: Value) -> Value:
    pads = [(0, 0), *((int(p), int(q)) for p, q in net.rng.integers(0, 3, (2, 2))), (0, 0)]
    shape = tuple(n + p + q for n, (p, q) in zip(x.shape, pads, strict=True))
    operands = [x.number, net.integers(pads)]
    if min(x.shape[1:3]) > 3 and net.kind != "s16" and net.chance(0.4):
        return net.value(
            "MIRROR_PAD", operands, shape, x.quant, "MirrorPadOptions", Mode=net.draw(0, 1)
        )
    return net.value("PAD", operands, shape, x.quant, "PadOptions")


def _sliced(net: Net, x: Value) -> Value:
    axis = net.draw(1, 2, 3)
    if x.shape[axis] < 3:
        return _function(net, x)
    if axis == 3 and x.shape[3] % 2 == 0 and net.chance(0.5):
        return _split(net, x)
    begin, end, step = [0] * 4, list(x.shape), [1] * 4
    begin[axis] = int(net.rng.integers(0, x.shape[axis] // 2))
    end[axis] = int(net.rng.integers(begin[axis] + 1, x.shape[axis] + 1))
    step[axis] = net.draw(1, 1, 2)
    shape = list(x.shape)
    shape[axis] = -(-(end[axis] - begin[axis]) // step[axis])
    operands = [x.number, *(net.integers(v) for v in (begin, end, step))]
    return net.value(
        "STRIDED_SLICE", operands, tuple(shape), x.quant, "StridedSliceOptions", BeginMask=0
    )


def _split(net: Net, x: Value) -> Value:
    """Both halves of the channels live on."""
    shape = (*x.shape[:3], x.shape[3] // 2)
    made = [net.tensor(shape, net.dtype, x.quant) for _ in range(2)]
    net.operator("SPLIT", [net.integers(3), x.number], made, "SplitOptions", NumSplits=2)
    net.live.append(Value(made[0], shape, x.quant))
    return Value(made[1], shape, x.quant)


def _reshaped(net: Net, x: Value, shape: Shape) -> Value:
    return net.value("RESHAPE", [x.number, net.integers(shape)], shape, x.quant)


def _shuffled(net: Net, x: Value) -> Value:
    """Channels in another order, as in ShuffleNet, or blocks of pixels as channels."""
    _, height, width, channels = x.shape
    if net.chance(0.4) and height % 2 == width % 2 == 0 and channels <= 16 and net.kind != "s16":
        shape = (1, height // 2, width // 2, 4 * channels)
        return net.value(
            "SPACE_TO_DEPTH", [x.number], shape, x.quant, "SpaceToDepthOptions", BlockSize=2
        )
    group = 2 if channels % 2 == 0 else 1
    wide = _reshaped(net, x, (1, height, width, group, channels // group))
    turned = net.value(
        "TRANSPOSE", [wide.number, net.integers([0, 1, 2, 4, 3])],
        (1, height, width, channels // group, group), x.quant, "TransposeOptions",
    )  # fmt: skip
    return _reshaped(net, turned, x.shape)


def _dense(net: Net, x: Value, outputs: int, shape: Shape) -> Value:
    weights = net.product(x, (outputs, x.shape[-1]), 0, outputs, net.chance(0.3))
    fields = {"KeepNumDims": len(shape) > 2, "AsymmetricQuantizeInputs": net.chance(0.5)}
    return net.value(
        "FULLY_CONNECTED", [x.number, *weights], shape, net.quant(), "FullyConnectedOptions",
        FusedActivationFunction=net.draw(*_CLAMPS), **fields,
    )  # fmt: skip


def _attended(net: Net, x: Value) -> Value:
    """Attention over the pixels, then the same shape again."""
    _, height, width, channels = x.shape
    if height * width > 100 or net.kind == "u8":
        return _pool(net, x)
    tokens = _reshaped(net, x, (1, height * width, channels))
    q, k, v = (_dense(net, tokens, channels, tokens.shape) for _ in range(3))
    square, name = (1, height * width, height * width), "BatchMatMulOptions"
    scores = net.value("BATCH_MATMUL", [q.number, k.number], square, net.quant(), name, AdjY=True)
    shares = net.value(
        "SOFTMAX", [scores.number], square, net.fixed(1 / 256, 1 / 32768), "SoftmaxOptions",
        Beta=float(channels**-0.5),
    )  # fmt: skip
    mixed = net.value(
        "BATCH_MATMUL", [shares.number, v.number], tokens.shape, net.quant(), name, AdjY=False
    )
    return _reshaped(net, mixed, x.shape)


_STEPS: tuple[Callable[[Net, Value], Value], ...] = (
    _conv, _conv, _conv, _conv, _conv, _conv_transpose, _pool, _function, _function, _scaled,
    _gated, _resized, _padded, _sliced, _shuffled, _attended,
)  # fmt: skip


def _joined(net: Net) -> Value | None:
    """A residual sum or product of two values of one shape, or a concatenation along channels."""
    a = net.draw(*net.live)
    b = net.draw(*(b for b in net.live if b.shape == a.shape))
    if net.chance(0.6):
        code = net.draw("ADD", "ADD", "MUL", "SUB", "MAXIMUM", "MINIMUM")
        if code in ("MAXIMUM", "MINIMUM"):
            b = net.at(b, a.quant)
        return _of_two(net, code, [a.number, b.number], a.shape)
    pixels = [b for b in net.live if b.shape[1:3] == a.shape[1:3]]
    parts = [a, *(net.draw(*pixels) for _ in range(net.draw(1, 1, 2)))]
    channels = sum(p.shape[3] for p in parts)
    if channels > 64:
        return None
    numbers = [net.at(p, a.quant).number for p in parts]
    shape = (*a.shape[:3], channels)
    return net.value("CONCATENATION", numbers, shape, a.quant, "ConcatenationOptions", Axis=3)


def _head(net: Net, x: Value) -> Value:
    """A classifier, in half of the networks; floats, in half of the quantized ones."""
    if net.chance(0.5):
        count, classes = int(np.prod(x.shape)), net.draw(3, 10, 17)
        x = _dense(net, _reshaped(net, x, (1, count)), classes, (1, classes))
        if net.chance(0.4):
            quant = net.fixed(1 / 256, 1 / 32768)
            x = net.value("SOFTMAX", [x.number], x.shape, quant, "SoftmaxOptions", Beta=1.0)
    if not net.quantized or net.chance(0.5):
        return x
    real = net.tensor(x.shape, DType.F32)
    net.operator("DEQUANTIZE", [x.number], [real], "DequantizeOptions")
    return Value(real, x.shape, None)


def random_litert(seeds: Sequence[int], kind: str) -> bytes:
    """A .tflite model of independent networks, one per seed, each of 5 to 20 layers with one input
    and one to three outputs, whose names end in the seed. `kind`: one of `TYPES`; u8, s8 and s16
    name the type of activations, f16 has weights of f16, `dynamic` weights of s8 whose operands
    are quantized as they arrive."""
    net = Net(kind)
    ends = [_grown(net, seed) for seed in seeds]
    ins, outs = tuple(given for given, _ in ends), sum((made for _, made in ends), ())
    return pack([SubgraphRecord("main", net.tensors, net.operators, ins, outs)], {})


def _grown(net: Net, seed: int) -> tuple[int, tuple[int, ...]]:
    """Adds the network of a seed; its input and its outputs."""
    net.begin(seed)
    first = len(net.operators)
    size = (net.draw(7, 9, 12, 16, 19, 24), net.draw(7, 8, 13, 16, 21, 24))
    shape, quant = (1, *size, net.draw(1, 3, 4, 8)), net.quant(3.0)
    if net.quantized and net.chance(0.5):
        given = net.tensor(shape, DType.F32)
        x = net.value("QUANTIZE", [given], shape, quant, "QuantizeOptions")
    else:
        given = net.tensor(shape, net.dtype, quant)
        x = Value(given, shape, quant)
    net.live.append(x)
    for _ in range(int(net.rng.integers(5, 21))):
        y = _joined(net) if net.chance(0.25) else None
        if y is None:
            recent = net.live[-1] if net.chance(0.7) else net.draw(*net.live)
            y = net.draw(*_STEPS)(net, recent)
        net.live.append(y)
    read = {number for operator in net.operators[first:] for number in operator.inputs}
    ends = [v for v in net.live[1:] if v.number not in read][-3:]
    return given, tuple(_head(net, v).number for v in ends)

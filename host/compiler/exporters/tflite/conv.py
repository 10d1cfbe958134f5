"""TensorFlow Lite export of convolutions, fully connected layers, matrix products and pools."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.exporters.tflite.sink import Fields, TfliteExportCall, in_floats, writes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.quantization import quantized_range
from edgekit.host.compiler.ir.types import Activation, Array, DType, Padding, Quant, Tensor
from edgekit.host.compiler.ir.windows import Pair, image_size, same_padding, span

_SAME, _VALID = 0, 1
_PER_CHANNEL = 3  # version of convolutions with per-channel s8
_WITH_BIAS = 3  # version of transposed convolutions with a bias
_KEEPS_DIMS = 5  # version of fully connected layers with keep_num_dims


@writes(ops.Conv2D)
def conv_2d(call: TfliteExportCall, op: ops.Conv2D) -> None:
    _need_plain(call, op)
    ins = _conv_operands(call)
    x, kind = _padded_input(call, ins, op.stride, op.dilation, op.padding)
    fields: Fields = {"Padding": kind, "StrideH": op.stride[0], "StrideW": op.stride[1]}
    fields |= {"DilationHFactor": op.dilation[0], "DilationWFactor": op.dilation[1]}
    version = _PER_CHANNEL if x.is_quantized else 1
    call.activated(
        "CONV_2D", [x, *ins[1:]], op.activation, "Conv2DOptions", version, **fields
    )  # fmt: skip


@writes(ops.DepthwiseConv2D)
def depthwise_conv_2d(call: TfliteExportCall, op: ops.DepthwiseConv2D) -> None:
    _need_plain(call, op)
    ins = _conv_operands(call)
    x, kind = _padded_input(call, ins, op.stride, op.dilation, op.padding)
    fields: Fields = {"Padding": kind, "StrideH": op.stride[0], "StrideW": op.stride[1]}
    fields |= {"DilationHFactor": op.dilation[0], "DilationWFactor": op.dilation[1]}
    fields["DepthMultiplier"] = op.multiplier
    version = _PER_CHANNEL if x.is_quantized else 1 + (op.dilation != (1, 1))
    call.activated(
        "DEPTHWISE_CONV_2D", [x, *ins[1:]], op.activation, "DepthwiseConv2DOptions", version,
        **fields,
    )  # fmt: skip


@writes(ops.TransposeConv2D)
def transpose_conv(call: TfliteExportCall, op: ops.TransposeConv2D) -> None:
    """Padding other than SAME: computes the full output and slices it."""
    _need_plain(call, op)
    x, w, bias = _conv_operands(call)
    assert x is not None and w is not None
    kind = _padding_mode(op.out_size, image_size(w.shape), op.stride, op.padding)
    pad, out = op.padding, call.out
    n, height, width, oc = out.shape
    whole = (n, height + pad.top + pad.bottom, width + pad.left + pad.right, oc)
    made = out if kind is not None else call.like(out, whole)
    fields: Fields = {"Padding": _VALID if kind is None else kind}
    fields |= {"StrideH": op.stride[0], "StrideW": op.stride[1]}
    version = _WITH_BIAS + (op.activation is not Activation.NONE)
    call.activated(
        "TRANSPOSE_CONV", [call.integers(made.shape), w, x, bias], op.activation,
        "TransposeConvOptions", version, made, **fields,
    )  # fmt: skip
    if made is not out:
        begin = call.integers((0, pad.top, pad.left, 0))
        call.emit(
            "SLICE", [made, begin, call.integers(out.shape)], out, version=1 + out.is_quantized
        )


@writes(ops.FullyConnected)
def fully_connected(call: TfliteExportCall, op: ops.FullyConnected) -> None:
    _need_plain(call, op)
    x, w, bias = _conv_operands(call)
    version = _KEEPS_DIMS if op.keep_dims or (x is not None and x.is_quantized) else 1
    call.activated(
        "FULLY_CONNECTED", [x, w, bias], op.activation, "FullyConnectedOptions", version,
        KeepNumDims=op.keep_dims,
    )  # fmt: skip


@writes(ops.MatMul)
def batch_matmul(call: TfliteExportCall, op: ops.MatMul) -> None:
    a, b = call.operand(0), call.operand(1)
    if a.dtype not in (DType.F32, DType.I8, DType.I16):
        raise call.refuse(
            "matrices of f32, or of s8 or s16 with a scale", a.dtype.value, "convert them to f32"
        )
    call.emit("BATCH_MATMUL", [a, b], call.out, "BatchMatMulOptions", 1 + a.is_quantized)


@writes(ops.MaxPool2D)
def max_pool(call: TfliteExportCall, op: ops.MaxPool2D) -> None:
    """Padding other than SAME: pads the image with the lowest value first."""
    x = call.operand(0)
    kind = _padding_mode(image_size(x.shape), op.window, op.stride, op.padding)
    if kind is None:
        least: float = -math.inf if x.dtype.is_float else quantized_range(x.dtype)[0]
        value = call.constant(np.array(least), x.dtype, x.quant)
        made = call.like(x, _padded_shape(x, op.padding))
        rows = _padding_constant(call, op.padding)
        call.emit("PADV2", [x, rows, value], made, "PadV2Options", 1 + x.is_quantized)
        x, kind = made, _VALID
    _emit_pool(call, "MAX_POOL_2D", x, op, kind)


@writes(ops.AveragePool2D)
def average_pool(call: TfliteExportCall, op: ops.AveragePool2D) -> None:
    """Padding other than SAME: pads with zeros, pools, and rescales by a factor that removes the
    zeros from the mean. In float only."""
    x, out = call.operand(0), call.out
    kind = _padding_mode(image_size(x.shape), op.window, op.stride, op.padding)
    if kind is not None:
        _emit_pool(call, "AVERAGE_POOL_2D", x, op, kind)
        return
    if x.is_quantized:
        with in_floats(call) as real:
            average_pool(real, op)
        return
    padded, pooled = call.like(x, _padded_shape(x, op.padding)), call.like(out)
    call.emit("PAD", [x, _padding_constant(call, op.padding)], padded, "PadOptions")
    inside = replace(op, activation=Activation.NONE)
    fields = _pool_fields(inside, _VALID)
    call.emit("AVERAGE_POOL_2D", [padded], pooled, "Pool2DOptions", **fields)
    factor = call.constant(_border_corrections(op, x), x.dtype)
    call.activated("MUL", [pooled, factor], op.activation, "MulOptions")


def _emit_pool(
    call: TfliteExportCall, code: str, x: Tensor, op: ops.MaxPool2D | ops.AveragePool2D, kind: int
) -> None:
    fields = _pool_fields(op, kind)
    call.activated(
        code, [x], op.activation, "Pool2DOptions", 1 + x.is_quantized, **fields
    )  # fmt: skip


def _pool_fields(op: ops.MaxPool2D | ops.AveragePool2D, kind: int) -> Fields:
    fields: Fields = {"Padding": kind, "StrideH": op.stride[0], "StrideW": op.stride[1]}
    return fields | {"FilterHeight": op.window[0], "FilterWidth": op.window[1]}


def _border_corrections(op: ops.AveragePool2D, x: Tensor) -> Array:
    """[1,oh,ow,1]: window size divided by the number of window pixels inside the image."""
    ones = np.ones((1, *image_size(x.shape), 1), np.float32)
    tensor = Tensor("ones", ones.shape, DType.F32)
    padded = replace(op, padding=Padding(), activation=Activation.NONE)
    widths = ((0, 0), (op.padding.top, op.padding.bottom), (op.padding.left, op.padding.right))
    image = np.pad(ones, (*widths, (0, 0)))
    source = Tensor("image", image.shape, DType.F32)
    shape, dtype = padded.infer([source])[0]
    share = padded.reference([image], [source], [replace(tensor, shape=shape, dtype=dtype)])[0]
    return 1.0 / share


def _need_plain(call: TfliteExportCall, op: ops.Weighted) -> None:
    """Refuses layers that compiler passes have fused."""
    if op.epilogue is not None or call.maybe(3) is not None:
        raise call.refuse(
            "a layer with at most an activation",
            "one with a fused operator",
            "write the graph from before the fusion passes",
        )


def _conv_operands(call: TfliteExportCall) -> list[Tensor | None]:
    """Image, weights and bias. Engines require a bias and check the scale of an s32 one."""
    x, w, bias = (*call.operands, None)[:3]
    assert x is not None and w is not None
    sums = DType.I32 if x.dtype.is_quantized else x.dtype
    if bias is None and not isinstance(call.node.op, ops.FullyConnected):
        bias = call.constant(np.zeros(call.out.shape[-1]), sums)
    if bias is None or bias.data is None or bias.quant is not None or sums is not DType.I32:
        return [x, w, bias]
    assert x.quant is not None and w.quant is not None
    scale = (x.quant.scale.reshape(-1)[0] * w.quant.scale).astype(np.float32)
    return [x, w, call.constant(bias.data, sums, Quant(scale, np.zeros(scale.size, np.int64)))]


def _padding_mode(size: Pair, window: Pair, stride: Pair, padding: Padding) -> int | None:
    """The format's padding mode that matches `padding`, or None. `window` includes dilation."""
    if not padding.any:
        return _VALID
    top, bottom = same_padding(size[0], window[0], stride[0])
    left, right = same_padding(size[1], window[1], stride[1])
    return _SAME if padding == Padding(top, bottom, left, right) else None


def _padded_input(
    call: TfliteExportCall, ins: list[Tensor | None], stride: Pair, dilation: Pair, padding: Padding
) -> tuple[Tensor, int]:
    """The input of a convolution and its padding mode; explicitly padded if no mode matches."""
    x, w = ins[:2]
    assert x is not None and w is not None
    window = span(image_size(w.shape), dilation)
    kind = _padding_mode(image_size(x.shape), window, stride, padding)
    if kind is not None:
        return x, kind
    made = call.like(x, _padded_shape(x, padding))
    call.emit("PAD", [x, _padding_constant(call, padding)], made, "PadOptions", 1 + x.is_quantized)
    return made, _VALID


def _padding_constant(call: TfliteExportCall, padding: Padding) -> Tensor:
    """The constant [4, 2] of padding before and after each axis."""
    rows = [(0, 0), (padding.top, padding.bottom), (padding.left, padding.right), (0, 0)]
    return call.integers(np.array(rows))


def _padded_shape(x: Tensor, padding: Padding) -> tuple[int, ...]:
    """The shape of an image after padding."""
    n, h, w, c = x.shape
    return n, h + padding.top + padding.bottom, w + padding.left + padding.right, c

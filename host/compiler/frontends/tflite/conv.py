"""Import of TensorFlow Lite's convolutions, matrix products and pools."""

from __future__ import annotations

import math
import struct

import numpy as np

from edgekit.host.compiler.frontends.common.computed_weights import Convolution, convolved, need_f32
from edgekit.host.compiler.frontends.tflite import conv_16x8 as wide
from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.frontends.tflite.transposed_conv import computed, overlapping, spread
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_rank
from edgekit.host.compiler.ir.types import (
    Activation,
    DType,
    Operator,
    Padding,
    Quant,
    ShapeError,
    Tensor,
)
from edgekit.host.compiler.ir.windows import Pair, span

_CUSTOM_SAME, _CUSTOM_VALID = 1, 2


def _image_size(call: TfliteCall, index: int) -> Pair:
    shape = call.tensor(index, "image").shape
    if len(shape) != 4:
        raise ShapeError(f"expected an image of rank 4, found shape {list(shape)}")
    return shape[1], shape[2]


def _window_size(call: TfliteCall) -> Pair:
    shape = call.tensor(1, "weights").shape
    if len(shape) != 4:
        raise ShapeError(f"expected weights of rank 4, found shape {list(shape)}")
    return shape[1], shape[2]


def conv_2d(call: TfliteCall) -> Tensor:
    stride, dilation = call.stride(), call.dilation()
    padding = call.padding(_image_size(call, 0), span(_window_size(call), dilation), stride)
    op = ops.Conv2D(stride, dilation, padding, call.activation())
    if wide.is_wide(call.maybe(0)):
        return wide.conv_2d(call, op)
    depth, channels = call.tensor(1, "weights").shape[3], call.tensor(0, "image").shape[3]
    if 0 < depth < channels and channels % depth == 0:
        return _grouped_conv(call, op, channels // depth)
    return _emit_convolution(call, op)


def _grouped_conv(call: TfliteCall, op: Operator, groups: int) -> Tensor:
    """One convolution per group of input channels; their outputs are concatenated."""
    x, w, bias = call.tensor(0, "image"), call.tensor(1, "weights"), call.maybe(2)
    outputs, depth = w.shape[0], w.shape[3]
    call.value(1, "weights")
    if outputs % groups:
        raise ShapeError(f"expected {groups} groups of output channels, found {outputs}")
    split = ops.Split(3, (depth,) * groups)
    parts, share = call.builder.emit_all(split, [x], x.quant), outputs // groups
    made = []
    for i, part in enumerate(parts):
        own = slice(i * share, (i + 1) * share)
        made.append(
            call.result(
                op, part, _slice_outputs(call, w, own), bias and _slice_outputs(call, bias, own)
            )
        )
    return call.result(ops.Concat(3), *made)


def _slice_outputs(call: TfliteCall, t: Tensor, own: slice) -> Tensor:
    """A range of output channels of a constant, with its quantization."""
    if t.data is None:
        raise ShapeError("expected constant weights and bias, found computed ones")
    quant = t.quant
    if quant is not None and quant.per_channel:
        quant = Quant(quant.scale[own], quant.zero_point[own], 0)
    return call.quantized(t.data[own], quant)


def depthwise_conv_2d(call: TfliteCall) -> Tensor:
    stride, dilation = call.stride(), call.dilation()
    padding = call.padding(_image_size(call, 0), span(_window_size(call), dilation), stride)
    channels = call.tensor(0, "image").shape[3]
    # The DepthMultiplier option is redundant and wrong in some files; TFLite ignores it.
    multiplier = call.tensor(1, "weights").shape[3] // max(channels, 1)
    op = ops.DepthwiseConv2D(stride, dilation, padding, multiplier, call.activation())
    if wide.is_wide(call.maybe(0)):
        return wide.depthwise_conv_2d(call, op)
    return _emit_convolution(call, op)


def transpose_conv(call: TfliteCall) -> Tensor:
    size = call.integers(0, "output shape")
    if len(size) != 4:
        raise ShapeError(f"expected an output shape of 4 dimensions, found {list(size)}")
    stride = call.stride()
    padding = call.padding((size[1], size[2]), _window_size(call), stride)
    op = ops.TransposeConv2D(stride, padding, (size[1], size[2]), call.activation())
    return _emit_transpose_conv(call, op, (2, 1, 3))


def transpose_conv_bias(call: TfliteCall) -> Tensor:
    """MediaPipe's operator; its options are three s32: padding (1 SAME, 2 VALID) and strides."""
    if len(call.operator.custom_options) != 12:
        raise ShapeError(f"expected 12 bytes of options, found {len(call.operator.custom_options)}")
    kind, height, width = struct.unpack("<3i", call.operator.custom_options)
    if height < 1 or width < 1:
        raise ShapeError(f"expected a stride of at least 1, found {height}x{width}")
    if kind not in (_CUSTOM_SAME, _CUSTOM_VALID):
        raise ShapeError(f"expected padding SAME or VALID, found number {kind}")
    stride, size, window = (height, width), _image_size(call, 0), _window_size(call)
    borders: list[int] = []
    out: list[int] = []
    for pixels, taps, step in zip(size, window, stride, strict=True):
        # MediaPipe's SAME differs from TRANSPOSE_CONV's for odd image sizes.
        cut = max(taps - (pixels - 1) % step - 1, 0) if kind == _CUSTOM_SAME else 0
        borders += [cut // 2, cut - cut // 2]
        out.append((pixels - 1) * step + taps - cut)
    return _emit_transpose_conv(
        call, ops.TransposeConv2D(stride, Padding(*borders), (out[0], out[1]))
    )


def _emit_transpose_conv(
    call: TfliteCall, op: ops.TransposeConv2D, order: tuple[int, ...] = (0, 1, 2)
) -> Tensor:
    x, w, bias = (call.maybe(i) for i in order)
    if wide.is_wide(x):
        return wide.transpose_conv(call, op, order)
    op.infer([x, w, bias])
    if x is None or w is None:
        raise ShapeError("expected an image and weights, found none")
    if any(t is not None and t.data is None for t in (w, bias)):
        need_f32(x, w, bias)
        return computed(call, op, x, w, bias)
    if _is_hybrid(x, w):  # TFLite quantizes each image with a zero point
        x, w = _fake_quantized_image(call, x), call.emit(ops.Cast(), w)
    return spread(call, op, x, w, bias) if overlapping(op, x, w) else call.result(op, x, w, bias)


def fully_connected(call: TfliteCall) -> Tensor:
    if call.option("WeightsFormat") != 0:
        raise ShapeError("expected weights in the default format, found shuffled ones")
    x, weights = call.tensor(0, "input"), call.tensor(1, "weights")
    keep = bool(call.option("KeepNumDims"))
    op = ops.FullyConnected(keep, call.activation())
    if wide.is_wide(x):
        return wide.fully_connected(call, op)
    if weights.data is None:
        return _computed_weights(call, x, weights, keep)
    asymmetric = call.option("AsymmetricQuantizeInputs") and _is_hybrid(x, weights)
    if asymmetric or (call.by_block.get(1) == "INT4" and x.dtype is DType.F32):
        k = weights.shape[-1]
        x = fake_quantized(call, x, (x.elements // max(k, 1), k))
        weights = call.emit(ops.Cast(), weights) if asymmetric else weights
    return call.result(op, x, weights, call.maybe(2))


def _computed_weights(call: TfliteCall, x: Tensor, weights: Tensor, keep: bool) -> Tensor:
    """x · weightsᵀ of two computed f32 tensors."""
    need_rank(weights, 2, "weights")
    n, k = weights.shape
    if x.dtype is not DType.F32 or weights.dtype is not DType.F32 or k < 1 or x.elements % k:
        raise ShapeError(
            f"expected constant weights, or computed f32 ones that fit, found "
            f"{weights.dtype.value}{list(weights.shape)} for {x.dtype.value}{list(x.shape)}"
        )
    rows = call.reshape(x, (x.elements // k, k))
    y = call.emit(ops.MatMul(), rows, call.transpose(weights, (1, 0)))
    if (bias := call.maybe(2)) is not None:
        y = call.emit(ops.Add(), y, bias)
    if (activation := call.activation()) is not Activation.NONE:
        y = call.emit(ops.Clamp(activation), y)
    return call.reshape(y, (*x.shape[:-1], n) if keep else y.shape)


def _is_hybrid(x: Tensor, weights: Tensor) -> bool:
    return x.dtype is DType.F32 and weights.dtype is DType.I8


def fake_quantized(call: TfliteCall, x: Tensor, rows: tuple[int, int]) -> Tensor:
    """x with each row quantized around its own zero point and dequantized."""
    return call.reshape(call.emit(ops.FakeQuantize(), call.reshape(x, rows)), x.shape)


def _fake_quantized_image(call: TfliteCall, x: Tensor) -> Tensor:
    return fake_quantized(call, x, (x.shape[0], x.elements // max(x.shape[0], 1)))


def _emit_convolution(call: TfliteCall, op: Convolution) -> Tensor:
    """`op` on the image, weights and bias."""
    x, weights, bias = (call.maybe(i) for i in range(3))
    if any(t is not None and t.data is None for t in (weights, bias)):
        return convolved(call, op, call.tensor(0, "image"), call.tensor(1, "weights"), bias)
    if x is not None and weights is not None and _is_hybrid(x, weights):
        per_channel = weights.quant is not None and weights.quant.per_channel
        # Only then does TFLite quantize each image with a zero point. A depthwise convolution
        # always has a scale per channel, of which there may be one.
        if per_channel or isinstance(op, ops.DepthwiseConv2D):
            x = _fake_quantized_image(call, x)
            weights = call.emit(ops.Cast(), weights)
    return call.result(op, x, weights, bias)


def average_pool(call: TfliteCall) -> Tensor:
    window, stride = _pool_window(call), call.stride()
    padding = call.padding(_image_size(call, 0), window, stride)
    op = ops.AveragePool2D(window, stride, padding, call.activation())
    return call.result(op, call.tensor(0, "image"))


def max_pool(call: TfliteCall) -> Tensor:
    window, stride = _pool_window(call), call.stride()
    padding = call.padding(_image_size(call, 0), window, stride)
    op = ops.MaxPool2D(window, stride, padding, call.activation())
    return call.result(op, call.tensor(0, "image"))


def l2_pool(call: TfliteCall) -> Tensor:
    """The square root of the mean of squares."""
    x, window, stride = call.tensor(0, "image"), _pool_window(call), call.stride()
    padding = call.padding(_image_size(call, 0), window, stride)
    average = call.emit(ops.AveragePool2D(window, stride, padding), call.emit(ops.Mul(), x, x))
    root = call.emit(ops.Sqrt(), average)
    activation = call.activation()
    return root if activation is Activation.NONE else call.emit(ops.Clamp(activation), root)


def _pool_window(call: TfliteCall) -> Pair:
    height, width = call.option("FilterHeight"), call.option("FilterWidth")
    if height < 1 or width < 1:
        raise ShapeError(f"expected a window of at least 1, found {height}x{width}")
    return height, width


def batch_matmul(call: TfliteCall) -> Tensor:
    """Batched matrices, transposed as the options specify; batch axes broadcast."""
    a, b = call.tensor(0, "first matrices"), call.tensor(1, "second matrices")
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ShapeError(f"expected matrices, found {list(a.shape)} and {list(b.shape)}")
    a = _swap_last_axes(call, a) if call.option("AdjX") else a
    if a.dtype is DType.F32 and b.data is not None and math.prod(b.shape[:-2]) == 1:
        return _constant_matmul(call, a, b)
    b = _swap_last_axes(call, b) if call.option("AdjY") else b
    if b.dtype is DType.I8 and a.dtype is DType.F32:
        b = call.emit(ops.Cast(), b)
    return call.result(ops.MatMul(), a, b)


def _constant_matmul(call: TfliteCall, a: Tensor, b: Tensor) -> Tensor:
    """A constant matrix shared by the batch: a fully connected layer. If it is quantized, rows of a
    are quantized dynamically, around 0 or asymmetrically according to the options."""
    assert b.data is not None
    lead = (1,) * (len(b.shape) - len(a.shape)) + a.shape[:-1]
    data = b.data.reshape(b.shape[-2:])
    weights = call.quantized(np.ascontiguousarray(data if call.option("AdjY") else data.T), None)
    if b.quant is not None:
        if b.quant.per_channel:
            raise ShapeError("expected one scale for a constant matrix, found several")
        weights = call.builder.with_quant(weights, b.quant)
    if weights.dtype is DType.I8 and call.option("AsymmetricQuantizeInputs"):
        a = fake_quantized(call, a, (a.elements // a.shape[-1], a.shape[-1]))
        weights = call.emit(ops.Cast(), weights)
    y = call.emit(ops.FullyConnected(True), a, weights, None)
    return call.reshape(y, (*lead, weights.shape[0]))


def _swap_last_axes(call: TfliteCall, x: Tensor) -> Tensor:
    rank = len(x.shape)
    return call.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

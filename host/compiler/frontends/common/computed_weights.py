"""f32 convolutions with computed weights: image windows times a matrix."""

from __future__ import annotations

from dataclasses import replace

from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Padding, ShapeError, Tensor

_TAPS_LIMIT = 1 << 10

Convolution = ops.Conv2D | ops.DepthwiseConv2D


def convolved(call: Emitter, op: Convolution, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """`op` on an NHWC image with computed weights, bias or both."""
    need_f32(x, w, bias)
    op.infer([x, w, bias])
    unclamped = replace(op, activation=Activation.NONE)
    if w.data is not None:
        y = call.emit(unclamped, x, w, None)
    elif isinstance(unclamped, ops.Conv2D):
        y = _of_all_channels(call, unclamped, x, w)
    else:
        y = _of_each_channel(call, unclamped, x, w)
    if bias is not None:
        y = call.emit(ops.Add(), y, bias)
    return y if op.activation is Activation.NONE else call.emit(ops.Clamp(op.activation), y)


def need_f32(*operands: Tensor | None) -> None:
    if any(t is not None and t.dtype is not DType.F32 for t in operands):
        raise ShapeError("expected constant quantized weights and bias, found computed ones")


def _of_all_channels(call: Emitter, op: ops.Conv2D, x: Tensor, w: Tensor) -> Tensor:
    ((shape, _),) = op.infer([x, w, None])
    parts = _window_taps(call, op, x, w)
    count = w.elements // w.shape[0]
    image = parts[0] if len(parts) == 1 else call.emit(ops.Concat(3), *parts)
    rows = call.reshape(image, (image.elements // count, count))
    matrix = call.transpose(call.reshape(w, (w.shape[0], count)), (1, 0))
    return call.reshape(call.emit(ops.MatMul(), rows, matrix), shape)


def _of_each_channel(call: Emitter, op: ops.DepthwiseConv2D, x: Tensor, w: Tensor) -> Tensor:
    ((shape, _),) = op.infer([x, w, None])
    channels, factors = x.shape[3], w.shape[3]
    rows = call.reshape(w, (w.elements // factors, factors))
    weights = call.split(rows, 0, (1,) * rows.shape[0])
    total: Tensor | None = None
    for part, factor in zip(_window_taps(call, op, x, w), weights, strict=True):
        side_by_side = call.reshape(part, (*part.shape, 1))
        own = call.reshape(factor, (channels, op.multiplier))
        product = call.emit(ops.Mul(), side_by_side, own)
        total = product if total is None else call.emit(ops.Add(), total, product)
    assert total is not None
    return call.reshape(total, shape)


def _window_taps(call: Emitter, op: Convolution, x: Tensor, w: Tensor) -> list[Tensor]:
    """The input pixels under each window element, [n, oh, ow, c], in row order."""
    ((shape, _),) = op.infer([x, w, None])
    kh, kw = w.shape[1:3]
    if kh * kw > _TAPS_LIMIT:
        raise ShapeError(
            f"expected a computed window of at most {_TAPS_LIMIT} elements, found {kh}x{kw}"
        )
    x = _pad_image(call, x, op.padding)
    extent = (shape[0], *shape[1:3], x.shape[3])
    steps = (1, *op.stride, 1)
    begins = [(0, i * op.dilation[0], j * op.dilation[1], 0) for i in range(kh) for j in range(kw)]
    if len(begins) == 1 and extent == x.shape:
        return [x]
    return [call.emit(ops.StridedSlice(begin, steps, extent, extent), x) for begin in begins]


def _pad_image(call: Emitter, x: Tensor, padding: Padding) -> Tensor:
    if not padding.any:
        return x
    before, after = (0, padding.top, padding.left, 0), (0, padding.bottom, padding.right, 0)
    return call.emit(ops.Pad(before, after), x)

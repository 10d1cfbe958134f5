"""Overlapping transposed convolutions as one convolution for all phases of the stride.

With stride s, output pixel q·s + r (before cropping) sums x[q − m] · w[r + s·m] over m: for each
phase r a convolution with ⌈k/s⌉ taps, all on the same windows of x. The output channels of one
convolution are those of all r, which are then interleaved as pixels. The sums are identical, so
quantized results are too.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from edgekit.host.compiler.frontends.common.computed_weights import convolved
from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Padding,
    Quant,
    ShapeError,
    Tensor,
)
from edgekit.host.compiler.ir.windows import Pair


def overlapping(op: ops.TransposeConv2D, x: Tensor, w: Tensor) -> bool:
    """Whether the transposed-convolution kernel (f32, disjoint windows) cannot be used."""
    _, kh, kw, _ = w.shape
    apart = op.stride == (kh, kw) and not op.padding.any
    return not (
        apart and x.dtype is DType.F32 and op.out_size == (x.shape[1] * kh, x.shape[2] * kw)
    )


def spread(
    call: TfliteCall,
    op: ops.TransposeConv2D,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    conv: type[ops.Conv2D] | partial[ops.Conv2D16x8] = ops.Conv2D,
) -> Tensor:
    """`op` as one `conv` for all phases; shapes and types have been checked."""
    assert w.data is not None
    (sh, sw), oc = op.stride, w.shape[0]
    taps, padding = _phase_taps(op, x, w)
    weights = call.builder.constant(_by_step(w, op.stride, taps), w.dtype)
    if w.quant is not None:
        quant = w.quant
        if quant.per_channel:
            zero = np.resize(quant.zero_point, quant.scale.size)
            quant = Quant(np.tile(quant.scale, sh * sw), np.tile(zero, sh * sw), 0)
        weights = call.builder.with_quant(weights, quant)
    terms = None
    if bias is not None and bias.data is not None:
        terms = call.constant(np.tile(bias.data, sh * sw))
    made = call.result(conv(padding=padding, activation=op.activation), x, weights, terms)
    return _side_by_side(call, op, made, oc)


def computed(
    call: TfliteCall, op: ops.TransposeConv2D, x: Tensor, w: Tensor, bias: Tensor | None
) -> Tensor:
    """`op` in f32 with computed weights, bias or both."""
    (sh, sw), (oc, kh, kw, ic) = op.stride, w.shape
    taps, padding = _phase_taps(op, x, w)
    more = (0, taps[0] * sh - kh, taps[1] * sw - kw, 0)
    wide = call.emit(ops.Pad((0,) * 4, more), w) if any(more) else w
    split = (oc, taps[0], sh, taps[1], sw, ic)
    back = ops.StridedSlice(
        (0, taps[0] - 1, 0, taps[1] - 1, 0, 0), (1, -1, 1, -1, 1, 1), split, split
    )
    steps = call.transpose(call.emit(back, call.reshape(wide, split)), (2, 4, 0, 1, 3, 5))
    weights = call.reshape(steps, (sh * sw * oc, *taps, ic))
    y = _side_by_side(call, op, convolved(call, ops.Conv2D(padding=padding), x, weights, None), oc)
    if bias is not None:
        y = call.emit(ops.Add(), y, bias)
    return y if op.activation is Activation.NONE else call.emit(ops.Clamp(op.activation), y)


def _phase_taps(op: ops.TransposeConv2D, x: Tensor, w: Tensor) -> tuple[Pair, Padding]:
    """The taps of each phase, and the padding of their convolution."""
    (sh, sw), (kh, kw) = op.stride, w.shape[1:3]
    taps = (-(-kh // sh), -(-kw // sw))
    if sh * sw * taps[0] * taps[1] > 4 * kh * kw + 16:
        raise ShapeError(
            f"expected a stride of about the window {kh}x{kw} at most, found {sh}x{sw}"
        )
    top, left = op.padding.top, op.padding.left
    rows, columns = -(-(op.out_size[0] + top) // sh), -(-(op.out_size[1] + left) // sw)
    return taps, Padding(
        taps[0] - 1, max(rows - x.shape[1], 0), taps[1] - 1, max(columns - x.shape[2], 0)
    )


def _side_by_side(call: TfliteCall, op: ops.TransposeConv2D, made: Tensor, oc: int) -> Tensor:
    """Interleaves the channels of all phases as pixels, and crops."""
    (sh, sw), top, left = op.stride, op.padding.top, op.padding.left
    n, height, width, _ = made.shape
    quant_out = made.quant
    steps = call.emit(ops.Reshape((n, height, width, sh, sw, oc)), made, quant=quant_out)
    steps = call.emit(ops.Transpose((0, 1, 3, 2, 4, 5)), steps, quant=quant_out)
    whole = (n, height * sh, width * sw, oc)
    image = call.emit(ops.Reshape(whole), steps, quant=quant_out)
    shape = (n, *op.out_size, oc)
    if shape == whole:
        return image
    return call.result(ops.StridedSlice((0, top, left, 0), (1,) * 4, shape, shape), image)


def _by_step(w: Tensor, stride: tuple[int, int], taps: tuple[int, int]) -> Array:
    """[oc, kh, kw, ic] as [sh · sw · oc, taps, taps, ic]; the last tap is at the nearest pixel."""
    assert w.data is not None
    (sh, sw), (oc, kh, kw, ic) = stride, w.shape
    zero = 0 if w.quant is None else int(w.quant.zero_point.flat[0])
    wide = np.full((oc, taps[0] * sh, taps[1] * sw, ic), zero, w.data.dtype)
    wide[:, :kh, :kw] = w.data
    split = wide.reshape(oc, taps[0], sh, taps[1], sw, ic)[:, ::-1, :, ::-1]
    steps = split.transpose(2, 4, 0, 1, 3, 5)
    return np.ascontiguousarray(steps).reshape(sh * sw * oc, *taps, ic)

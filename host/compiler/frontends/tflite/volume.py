"""TensorFlow Lite's convolutions of volumes [n, d, h, w, c] as 2-D convolutions."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.common.computed_weights import convolved, need_f32
from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.frontends.tflite.transposed_conv import computed, overlapping, spread
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, ShapeError, Tensor
from edgekit.host.compiler.ir.windows import same_padding, span

_SAME = 0


def conv_3d(call: TfliteCall) -> Tensor:
    """Stacks slices of all depth taps as channels of one image; weights [kd, kh, kw, ic, oc]."""
    x, w = _checked_volume(call.tensor(0, "volume")), _checked_volume(call.tensor(1, "weights"))
    kd, kh, kw, ic, oc = w.shape
    n, d, h, width, channels = x.shape
    if channels != ic:
        raise ShapeError(f"expected weights of {channels} input channels, found {ic}")
    step, spread = _of_depth(call, "StrideD"), _of_depth(call, "DilationDFactor")
    stride, dilation = call.stride(), call.dilation()
    taps = (kd - 1) * spread + 1
    before, after = same_padding(d, taps, step) if call.option("Padding") == _SAME else (0, 0)
    if before or after:
        x = call.emit(ops.Pad((0, before, 0, 0, 0), (0, after, 0, 0, 0)), x)
    depth = (d + before + after - taps) // step + 1
    if depth < 1:
        raise ShapeError(f"expected a volume at least {taps} deep, found {d}")
    parts = []
    for k in range(kd):
        begin, steps = (0, k * spread, 0, 0, 0), (1, step, 1, 1, 1)
        extent = (n, depth, h, width, ic)
        op = ops.StridedSlice(begin, steps, extent, (n * depth, h, width, ic))
        parts.append(call.emit(op, x))
    image = parts[0] if kd == 1 else call.emit(ops.Concat(3), *parts)
    padding = call.padding((h, width), span((kh, kw), dilation), stride)
    op_2d = ops.Conv2D(stride, dilation, padding, call.activation())
    weights = call.reshape(call.transpose(w, (4, 1, 2, 0, 3)), (oc, kh, kw, kd * ic))
    bias = call.maybe(2)
    if all(t is None or t.data is not None for t in (w, bias)):
        y = call.emit(op_2d, image, weights, bias)
    else:
        y = convolved(call, op_2d, image, weights, bias)
    return call.reshape(y, (n, depth, *y.shape[1:]))


def conv_3d_transpose(call: TfliteCall) -> Tensor:
    """One 2-D transposed convolution of all slices computes all depth taps [kd, kh, kw, oc, ic],
    which are added at their offsets."""
    size = call.integers(0, "output shape")
    x, w = _checked_volume(call.tensor(2, "volume")), _checked_volume(call.tensor(1, "weights"))
    kd, kh, kw, oc, ic = w.shape
    n, d, h, width, channels = x.shape
    if len(size) != 5 or min(size) < 1 or channels != ic or size[0] != n or size[4] != oc:
        raise ShapeError(f"expected an output of {oc} channels for {ic}, found {list(size)}")
    if call.dilation() != (1, 1) or _of_depth(call, "DilationDFactor") != 1:
        raise ShapeError("expected no dilation, found one")
    step, depth = _of_depth(call, "StrideD"), size[1]
    front = same_padding(depth, kd, step)[0] if call.option("Padding") == _SAME else 0
    stride, pixels = call.stride(), (size[2], size[3])
    op = ops.TransposeConv2D(stride, call.padding(pixels, (kh, kw), stride), pixels)
    weights = call.reshape(call.transpose(w, (0, 3, 1, 2, 4)), (kd * oc, kh, kw, ic))
    images = call.reshape(x, (n * d, h, width, ic))
    if weights.data is None:
        need_f32(images, weights)
        taps = computed(call, op, images, weights, None)
    elif overlapping(op, images, weights):
        taps = spread(call, op, images, weights, None)
    else:
        taps = call.emit(op, images, weights, None)
    taps = call.reshape(taps, (n * d, *pixels, kd, oc))
    taps = call.reshape(call.transpose(taps, (0, 3, 1, 2, 4)), (n * d * kd, *pixels, oc))
    call.builder.need_room((n, d, kd), np.int64)
    at = np.arange(d)[:, None] * step + np.arange(kd) - front
    outside = (at < 0) | (at >= depth)
    rows = np.arange(n)[:, None, None] * depth + at
    rows = np.where(outside, n * depth, rows).reshape(-1).astype(np.int32)
    start = call.filled((n * depth, *pixels, oc), 0, np.float32)
    y = call.emit(ops.Scatter("add"), start, call.constant(rows), taps)
    y = call.reshape(y, (n, depth, *pixels, oc))
    if (bias := call.maybe(3)) is not None:
        y = call.emit(ops.Add(), y, bias)
    activation = call.activation()
    return y if activation is Activation.NONE else call.emit(ops.Clamp(activation), y)


def _checked_volume(x: Tensor) -> Tensor:
    if len(x.shape) != 5:
        raise ShapeError(f"expected a tensor of rank 5, found shape {list(x.shape)}")
    return x


def _of_depth(call: TfliteCall, name: str) -> int:
    value = int(call.option(name))
    if value < 1:
        raise ShapeError(f"expected a {name} of at least 1, found {value}")
    return value

"""ONNX convolutions of volumes [n, c, d, h, w] as 2-D convolutions; others go to `conv.py`."""

from __future__ import annotations

from collections.abc import Callable

from edgekit.host.compiler.frontends.onnx import conv as onnx_conv
from edgekit.host.compiler.frontends.onnx import transposed_conv as onnx_transpose
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import (
    Sliding,
    conv_computed_weights,
    crop,
    grouped,
    groups_of,
    sliding_over,
)
from edgekit.host.compiler.frontends.onnx.transposed_conv import transposed
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Shape, ShapeError, Tensor

_RANK = 5


def conv(call: OnnxCall) -> Tensor:
    """Stacks the slices of all depth taps as channels of one image; with groups, sums one
    convolution per tap."""
    x = call.x(0)
    if len(x.shape) != _RANK:
        return onnx_conv.conv(call)
    w, term = call.x(1), call.maybe(2)
    _check_window(call, w)
    x, s = sliding_over(call, x, w.shape[2:])
    groups, flat = groups_of(call), _of_images(s)
    parts = _depth_taps(call, x, s)
    if w.data is None or (term is not None and term.data is None):
        return _summed(call, parts, _computed_weights(call, w, term, groups, flat), x.shape[0])
    weights, bias = _read_weights(call)
    if groups == 1:
        image = parts[0] if len(parts) == 1 else call.emit(ops.Concat(3), *parts)
        stacked = weights.transpose(0, 2, 1, 3, 4).reshape(len(weights), -1, *w.shape[3:])
        return _unfold_depth(call, grouped(call, image, stacked, bias, 1, flat), x.shape[0])

    def of_tap(part: Tensor, k: int) -> Tensor:
        return grouped(call, part, weights[:, :, k], None if k else bias, groups, flat)

    return _summed(call, parts, of_tap, x.shape[0])


def summed_over_depth(
    call: OnnxCall, x: Tensor, s: Sliding, of_tap: Callable[[Tensor, int, Sliding], Tensor]
) -> Tensor:
    """The sum of `of_tap(slices, tap, window)` over all depth taps, as [n, c, d, h, w]; slices are
    NHWC images."""
    flat = _of_images(s)
    parts = _depth_taps(call, x, s)
    return _summed(call, parts, lambda part, k: of_tap(part, k, flat), x.shape[0])


def _depth_taps(call: OnnxCall, x: Tensor, s: Sliding) -> list[Tensor]:
    """For each depth tap the slices that it meets, as images [n · depth, h, w, c]."""
    volume = _channels_last(call, x)
    if s.before[0] or s.after[0]:
        ends = ((0, s.before[0], 0, 0, 0), (0, s.after[0], 0, 0, 0))
        volume = call.emit(ops.Pad(*ends), volume)
    n, depth, *rest = volume.shape
    steps = (depth - (s.window[0] - 1) * s.dilation[0] - 1) // s.stride[0] + 1
    if steps < 1:
        raise ShapeError(f"expected a volume deeper than {s.window[0]} slices, found {depth}")
    parts = []
    for k in range(s.window[0]):
        begin, stride = (0, k * s.dilation[0], 0, 0, 0), (1, s.stride[0], 1, 1, 1)
        op = ops.StridedSlice(begin, stride, (n, steps, *rest), (n * steps, *rest))
        parts.append(call.emit(op, volume))
    return parts


def _summed(
    call: OnnxCall, parts: list[Tensor], of_tap: Callable[[Tensor, int], Tensor], n: int
) -> Tensor:
    y = of_tap(parts[0], 0)
    for k, part in enumerate(parts[1:], 1):
        y = call.emit(ops.Add(), y, of_tap(part, k))
    return _unfold_depth(call, y, n)


def _computed_weights(
    call: OnnxCall, w: Tensor, bias: Tensor | None, groups: int, s: Sliding
) -> Callable[[Tensor, int], Tensor]:
    """The convolution of a depth tap by weights [oc, ic/groups, kd, kh, kw]; at least one operand
    is computed."""
    oc, depth, kd, *window = w.shape
    taps = call.split(call.transpose(w, (0, 3, 4, 2, 1)), 3, (1,) * kd)

    def of_tap(part: Tensor, k: int) -> Tensor:
        tap = call.reshape(taps[k], (oc, *window, depth))
        return conv_computed_weights(call, part, tap, None if k else bias, groups, s)

    return of_tap


def conv_transpose(call: OnnxCall) -> Tensor:
    """A 2-D transposed convolution of all slices per depth tap, added at the tap's offset."""
    x = call.x(0)
    if len(x.shape) != _RANK:
        return onnx_transpose.conv_transpose(call)
    w, bias = _read_weights(call)
    groups, s = groups_of(call), onnx_transpose.cut_of(call, x.shape[2:], w.shape[2:])
    if w.shape[0] != x.shape[1] or w.shape[0] % groups:
        raise ShapeError(f"expected weights of {x.shape[1]} channels, found {list(w.shape)}")
    n, depth = x.shape[0], x.shape[2]
    volume = _channels_last(call, x)
    image = call.reshape(volume, (n * depth, *volume.shape[2:]))
    step, spread = s.stride[0], s.dilation[0]
    # A negative `after` extends past the full result.
    reach = (s.window[0] - 1) * spread + max(-s.after[0], 0)
    y: Tensor | None = None
    for k in range(s.window[0]):
        part = transposed(call, image, w[:, :, k], None, groups, _of_images(s))
        part = call.reshape(part, (n, depth, 1, *part.shape[1:]))
        part = call.emit(ops.Pad((0,) * 6, (0, 0, step - 1, 0, 0, 0)), part)
        part = call.reshape(part, (n, depth * step, *part.shape[3:]))
        ends = ((0, k * spread, 0, 0, 0), (0, reach - k * spread, 0, 0, 0))
        part = call.emit(ops.Pad(*ends), part)
        y = part if y is None else call.emit(ops.Add(), y, part)
    assert y is not None
    # `step` − 1 zero slices follow the last slice.
    y = crop(call, y, (0, s.before[0], 0, 0, 0), (0, max(s.after[0], 0) + step - 1, 0, 0, 0))
    if bias is not None:
        y = call.emit(ops.Add(), y, call.constant(bias))
    return call.transpose(y, (0, 4, 1, 2, 3))


def _read_weights(call: OnnxCall) -> tuple[Array, Array | None]:
    w = call.value(1, "weights")
    _check_window(call, call.x(1))
    return w, None if call.maybe(2) is None else call.value(2, "bias").reshape(-1)


def _check_window(call: OnnxCall, w: Tensor) -> None:
    window = w.shape[2:]
    if len(w.shape) != _RANK or not w.elements or call.list("kernel_shape", window) != window:
        raise ShapeError(f"expected weights of rank {_RANK}, found shape {list(w.shape)}")


def _of_images(s: Sliding) -> Sliding:
    """The window without its first axis."""
    return Sliding(s.window[1:], s.stride[1:], s.dilation[1:], s.before[1:], s.after[1:])


def _channels_last(call: OnnxCall, x: Tensor) -> Tensor:
    return call.transpose(x, (0, 2, 3, 4, 1))


def _unfold_depth(call: OnnxCall, y: Tensor, n: int) -> Tensor:
    """[n · depth, h, w, c] → [n, c, depth, h, w]"""
    shape: Shape = (n, y.shape[0] // n, *y.shape[1:])
    return call.transpose(call.reshape(y, shape), (0, 4, 1, 2, 3))

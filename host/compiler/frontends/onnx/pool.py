"""Import of ONNX pools, also of regions: NCHW outside; pools without a kernel are composed of
slices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from edgekit.host.compiler.frontends.common import indexing
from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import (
    Sliding,
    as_image,
    padding_of,
    pair,
    sliding,
    surround,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Operator, ShapeError, Tensor

_TAPS = 1024  # of a window composed of slices at once
_WIDE = 16  # elements
_UNPOOLED_LIMIT = 1 << 26  # elements


def max_pool(call: OnnxCall) -> Tensor | list[Tensor]:
    x = call.x(0)
    need_rank(x, 3, 4, 5)
    if len(call.node.outputs) > 1:
        return _max_with_indices(call, x)
    x, s = _sliding(call, x)
    simple = len(x.shape) < 5 and set(s.dilation) == {1} and x.dtype is DType.F32
    if simple and all(p < w for p, w in zip((*s.before, *s.after), s.window * 2, strict=True)):
        image = call.nhwc(as_image(call, x))
        op = ops.MaxPool2D(pair(s.window, 1), pair(s.stride, 1), padding_of(s))
        y = call.nchw(call.emit(op, image))
        return y if len(x.shape) == 4 else call.reshape(y, (*y.shape[:2], y.shape[3]))
    return _by_slices(call, x, s, _lowest_value(x), lambda a, b: call.emit(ops.Maximum(), a, b))


def _sliding(call: OnnxCall, x: Tensor, leaves_out: bool = False) -> tuple[Tensor, Sliding]:
    """The windows of a pool, and `x` without what they leave out.

    Automatic padding of windows that end before the image does is negative. In ONNX Runtime it
    then cuts both ends, in pools with dilations and in all of LpPool (`leaves_out`).
    """
    window, ceil = call.list("kernel_shape"), bool(call.integer("ceil_mode", 0))
    s = sliding(call, x.shape[2:], window, ceil, pooled=True)
    kind = call.text("auto_pad", "NOTSET")
    if kind not in ("SAME_UPPER", "SAME_LOWER") or not (leaves_out or max(s.dilation) > 1):
        return x, s
    for i, (n, w, step) in enumerate(zip(x.shape[2:], window, s.stride, strict=True)):
        left = max(n - (-(-n // step) - 1) * step - w, 0)  # behind the last window
        begin = max(left - (kind == "SAME_LOWER"), 0) // 2
        x = call.part(x, 2 + i, begin, n - left)
    return x, sliding(call, x.shape[2:], window, ceil, pooled=True)


def _max_with_indices(call: OnnxCall, x: Tensor) -> list[Tensor]:
    """[maxima, their positions in flattened x]; the first of equal maxima."""
    window, ceil = call.list("kernel_shape"), bool(call.integer("ceil_mode", 0))
    s = sliding(call, x.shape[2:], window, ceil, pooled=True)
    shape = x.shape[2:]
    padded_shape = [b + n + a for b, n, a in zip(s.before, shape, s.after, strict=True)]
    call.builder.need_room(padded_shape, np.int64)
    call.builder.need_room(x.shape[:2], np.int64)
    at = np.arange(math.prod(shape), dtype=np.int64)
    # With storage_order 1 (column-major), the first axis varies fastest.
    columns = call.integer("storage_order", 0)
    places = at.reshape(shape[::-1]).T if columns else at.reshape(shape)
    starts = np.arange(x.shape[0] * x.shape[1], dtype=np.int64) * at.size
    starts = starts.reshape(*x.shape[:2], *(1,) * len(shape))
    widths = list(zip(s.before, s.after, strict=True))
    padded = np.pad(places, widths, constant_values=-1)
    best: list[Tensor] = []
    wide = surround(call, x, (0, 0, *s.before), (0, 0, *s.after), _lowest_value(x))
    _need_window(wide, s)
    for part, tap in _window_slices(call, wide, s):
        cut = tuple(
            slice(t * d, t * d + (n - 1) * st + 1, st)
            for t, d, n, st in zip(tap, s.dilation, part.shape[2:], s.stride, strict=True)
        )
        place = call.constant(padded[cut])
        if best:
            better = call.emit(ops.Less(), best[0], part)
            place = call.emit(ops.Where(), better, place, best[1])
            part = call.emit(ops.Maximum(), best[0], part)
        best = [part, place]
    at_all = call.emit(ops.Add(), best[1], call.constant(starts))
    call.builder.limit(at_all, 0, x.elements - 1)
    return [best[0], at_all]


def _lowest_value(x: Tensor) -> float:
    """The lowest value of the type of x."""
    return -math.inf if x.dtype.is_float else float(np.iinfo(x.dtype.numpy).min)


def lp_pool(call: OnnxCall) -> Tensor:
    """The p-th root of the sum of |x|^p over each window."""
    x = call.x(0)
    need_rank(x, 3, 4, 5)
    x, s = _sliding(call, x, leaves_out=True)
    total = _by_slices(call, _abs_power(call, x), s, 0.0, lambda a, b: call.emit(ops.Add(), a, b))
    return _pth_root(call, total)


def global_lp_pool(call: OnnxCall) -> Tensor:
    x = call.x(0)
    return _pth_root(
        call, call.emit(ops.ReduceSum(tuple(range(2, len(x.shape))), True), _abs_power(call, x))
    )


def _abs_power(call: OnnxCall, x: Tensor) -> Tensor:
    p = call.number("p", 2)  # a float before opset 2
    if p == 2:
        return call.emit(ops.Mul(), x, x)
    return call.emit(ops.Pow(), call.emit(ops.Abs(), x), call.builder.floats(p))


def _pth_root(call: OnnxCall, x: Tensor) -> Tensor:
    p = call.number("p", 2)
    if not p >= 1:  # also for NaN
        raise ShapeError(f"expected p of at least 1, found {p}")
    if p == 2:
        return call.emit(ops.Sqrt(), x)
    return call.emit(ops.Pow(), x, call.builder.floats(1 / p))


def average_pool(call: OnnxCall) -> Tensor:
    x = call.x(0)
    need_rank(x, 3, 4, 5)
    whole = bool(call.integer("count_include_pad", 0))
    x, s = _sliding(call, x)
    padded = any((*s.before, *s.after))
    inside = all(p < w for p, w in zip((*s.before, *s.after), s.window * 2, strict=True))
    if len(x.shape) < 5 and set(s.dilation) == {1} and inside and not (whole and padded):
        image = call.nhwc(as_image(call, x))
        op = ops.AveragePool2D(pair(s.window, 1), pair(s.stride, 1), padding_of(s))
        y = call.nchw(call.emit(op, image))
        return y if len(x.shape) == 4 else call.reshape(y, (*y.shape[:2], y.shape[3]))
    total = _by_slices(call, x, s, 0.0, lambda a, b: call.emit(ops.Add(), a, b))
    return call.emit(ops.Div(), total, call.constant(_window_counts(call, x, s, whole)))


def _window_counts(call: OnnxCall, x: Tensor, s: Sliding, whole: bool) -> Array:
    """The number of elements in each window's mean: [1, 1, ...]."""
    counts = np.ones((), np.float32)
    own = sliding(call, x.shape[2:], s.window, ceil=False, pooled=True).after
    for i, size in enumerate(x.shape[2:]):
        # count_include_pad counts the file's own padding, but not padding from ceil_mode.
        low, high = (-s.before[i], size + own[i]) if whole else (0, size)
        span = (s.window[i] - 1) * s.dilation[i] + 1
        steps = (size + s.before[i] + s.after[i] - span) // s.stride[i] + 1
        call.builder.need_room((*counts.shape, steps), np.float32)
        call.builder.need_room((steps, s.window[i]), np.int64)
        taps = np.arange(s.window[i]) * s.dilation[i]
        at = np.arange(steps)[:, None] * s.stride[i] - s.before[i] + taps
        inside = ((at >= low) & (at < high)).sum(axis=1).astype(np.float32)
        counts = counts[..., None] * inside
    return counts.reshape(1, 1, *counts.shape)


def _by_slices(
    call: OnnxCall, x: Tensor, s: Sliding, filler: float, join: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """A pool of any rank, one axis after the other: slices combined, one per window element."""
    y = surround(call, x, (0, 0, *s.before), (0, 0, *s.after), filler)
    _need_window(y, s)
    for axis in range(len(s.window)):
        y = _along(call, y, s, axis, join)
    return y


def _along(
    call: OnnxCall, x: Tensor, s: Sliding, axis: int, join: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Windows along a spatial axis: a slice per element, or windows of doubled widths where there
    are many."""
    window, step, apart = s.window[axis], s.stride[axis], s.dilation[axis]
    axis += 2
    count = (x.shape[axis] - (window - 1) * apart - 1) // step + 1
    extent = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    strides = tuple(step if i == axis else 1 for i in range(len(extent)))

    def cut(whole: Tensor, element: int) -> Tensor:
        begin = tuple(element * apart if i == axis else 0 for i in range(len(extent)))
        return call.emit(ops.StridedSlice(begin, strides, extent, extent), whole)

    if window <= _WIDE:
        return functools.reduce(join, (cut(x, i) for i in range(window)))
    parts, taken, power = [], 0, 1
    while True:  # x has windows of `power` elements here
        if window & power:
            parts.append(cut(x, taken))
            taken += power
        if taken == window:
            return functools.reduce(join, parts)
        rest = x.shape[axis] - power * apart
        x = join(call.part(x, axis, 0, rest), call.part(x, axis, power * apart, rest))
        power *= 2


def _need_window(padded: Tensor, s: Sliding) -> None:
    span = [(w - 1) * d + 1 for w, d in zip(s.window, s.dilation, strict=True)]
    if any(n < w for n, w in zip(padded.shape[2:], span, strict=True)):
        raise ShapeError(
            f"expected an image that holds one window of {'x'.join(map(str, span))}, found "
            f"{'x'.join(map(str, padded.shape[2:]))}"
        )


def _window_slices(
    call: OnnxCall, padded: Tensor, s: Sliding
) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """The slice under each window element, and the element's index."""
    if math.prod(s.window) > _TAPS:
        raise ShapeError(f"expected a window of at most {_TAPS} elements, found {list(s.window)}")
    sizes = [
        (d - (w - 1) * di - 1) // st + 1
        for d, w, di, st in zip(padded.shape[2:], s.window, s.dilation, s.stride, strict=True)
    ]
    extent = (*padded.shape[:2], *sizes)
    for tap in itertools.product(*(range(w) for w in s.window)):
        begin = (0, 0, *(t * d for t, d in zip(tap, s.dilation, strict=True)))
        op = ops.StridedSlice(begin, (1, 1, *s.stride), extent, extent)
        yield call.emit(op, padded), tap


def global_average_pool(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axes = tuple(range(2, len(x.shape)))
    return call.emit(ops.Mean(axes, True), x)


def global_max_pool(call: OnnxCall) -> Tensor:
    x = call.x(0)
    return call.emit(ops.ReduceMax(tuple(range(2, len(x.shape))), True), x)


def max_unpool(call: OnnxCall) -> Tensor:
    """Values at their indices in the result, 0 elsewhere."""
    x, at = call.x(0), call.x(1)
    window = call.list("kernel_shape")
    stride = call.list("strides", (1,) * len(window))
    pads = call.list("pads", (0,) * (2 * len(window)))
    rank = len(x.shape) - 2
    if not (rank == len(window) == len(stride) == len(pads) // 2) or at.shape != x.shape:
        raise ShapeError(
            f"expected a window and indices for {list(x.shape)}, found {list(window)} and "
            f"{list(at.shape)}"
        )
    sizes = [
        (d - 1) * st - before - after + w
        for d, w, st, before, after in zip(
            x.shape[2:], window, stride, pads[:rank], pads[rank:], strict=True
        )
    ]
    if min(sizes, default=0) < 1 or math.prod((*x.shape[:2], *sizes)) > _UNPOOLED_LIMIT:
        raise ShapeError(
            f"expected image sides of at least 1 and {_UNPOOLED_LIMIT} elements at most, found "
            f"{sizes}"
        )
    least = (*x.shape[:2], *sizes)
    shape = call.integers(2, "output shape") if call.maybe(2) is not None else least
    if len(shape) != len(least) or any(a < b for a, b in zip(shape, least, strict=True)):
        raise ShapeError(f"expected an output of at least {list(least)}, found {list(shape)}")
    if math.prod(shape) > _UNPOOLED_LIMIT:
        raise ShapeError(f"expected {_UNPOOLED_LIMIT} elements at most, found {list(shape)}")
    empty = call.filled(shape, 0, x.dtype.numpy)
    return indexing.place(call, empty, indexing.as_indices(call, at), x, shape)


def roi_align(call: OnnxCall) -> Tensor:
    """[regions, c, oh, ow]: mean or maximum of samples in each bin; regions may be computed."""
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    mode = call.text("mode", "avg")
    if mode not in ("avg", "max"):
        raise ShapeError(f"expected mode avg or max, found {mode}")
    op = ops.RoiAlign(
        (call.integer("output_height", 1), call.integer("output_width", 1)),
        call.integer("sampling_ratio", 0),
        call.number("spatial_scale", 1.0),
        call.text("coordinate_transformation_mode", usual) == "half_pixel",
        mode == "max",
    )
    return _pool(call, op, call.x(1), call.convert(call.x(2), DType.I32))


def max_roi_pool(call: OnnxCall) -> Tensor:
    """[regions, c, oh, ow]: the maximum of each bin."""
    size = call.list("pooled_shape")
    if len(size) != 2:
        raise ShapeError(f"expected a pooled_shape of two sizes, found {list(size)}")
    op = ops.MaxRoiPool((size[0], size[1]), call.number("spatial_scale", 1.0))
    return _pool(call, op, call.x(1))


def _pool(call: OnnxCall, op: Operator, *regions: Tensor) -> Tensor:
    x = call.x(0)
    need_rank(x, 4)
    y = call.emit(op, call.transpose(x, (0, 2, 3, 1)), *regions)
    return call.transpose(y, (0, 3, 1, 2))

"""Import of ONNX operators that sample images at possibly computed, fractional positions.

Images are stored as rows of channels, one per pixel. Each position gathers the surrounding rows and
sums them with interpolation weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import sliding
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Shape, ShapeError, Tensor

_MODES = {
    "nearest": "nearest", "bilinear": "linear", "linear": "linear", "bicubic": "cubic",
    "cubic": "cubic",
}  # fmt: skip
_PADDINGS = ("zeros", "border", "reflection")
_SHARPNESS = -0.75  # coefficient of cubic interpolation

Tap = tuple[Tensor, Tensor | None]  # pixel index on one axis; its weight, None: 1


def grid_sample(call: OnnxCall) -> Tensor:
    """[n, c, ...] sampled at [n, ..., axes]; the last axis has x first, from -1 to 1."""
    x, grid = call.x(0), call.x(1)
    size, rank = x.shape[2:], len(x.shape) - 2
    if rank < 1 or grid.shape[::-1][:1] != (rank,) or grid.shape[:1] != x.shape[:1]:
        raise ShapeError(
            f"expected a grid of {rank} numbers for each place, found {list(grid.shape)}"
        )
    mode, padding = call.text("mode", "linear"), call.text("padding_mode", "zeros")
    if mode not in _MODES or padding not in _PADDINGS:
        raise ShapeError(f"expected a known mode and padding, found {mode} and {padding}")
    corners = bool(call.integer("align_corners", 0))
    parts = call.builder.emit_all(ops.Split(len(grid.shape) - 1, (1,) * rank), [grid])
    taps = []
    for length, part in zip(size, reversed(parts), strict=True):
        at = _to_pixel_coordinates(call, call.reshape(part, grid.shape[:-1]), length, corners)
        taps.append(_axis_taps(call, at, length, _MODES[mode], padding, corners))
    call.builder.need_room(x.shape[:1], np.int64)
    starts = np.arange(x.shape[0]).reshape(-1, *(1,) * (len(grid.shape) - 2))
    image = call.constant((starts * math.prod(size)).astype(np.int32))
    y = _combine_taps(call, _flatten_pixels(call, x), size, image, taps)
    return _channels_first(call, y)


def _to_pixel_coordinates(call: OnnxCall, at: Tensor, length: int, corners: bool) -> Tensor:
    """Converts -1..1 to pixel coordinates, with the rounding of ONNX's reference."""
    at = _add_scalar(call, at, 1)
    if corners:
        return _mul_scalar(call, _mul_scalar(call, at, 0.5), length - 1)
    return _mul_scalar(call, _add_scalar(call, _mul_scalar(call, at, length), -1), 0.5)


def _axis_taps(
    call: OnnxCall, at: Tensor, length: int, mode: str, padding: str, corners: bool
) -> list[Tap]:
    """The pixels that each position reads along one axis."""
    low, high = (0.0, length - 1.0) if corners else (-0.5, length - 0.5)
    if mode == "nearest":
        at = call.emit(ops.RoundEven(), at)
    if padding == "border" and mode != "cubic":
        # A cubic's weights depend on the place, so only its taps are moved to the edge.
        at = call.emit(ops.Clip(0.0, length - 1.0), at)
    elif padding == "reflection":
        at = _reflect(call, at, low, high)
    first = call.emit(ops.Floor(), at)
    weights = _tap_weights(call, call.emit(ops.Sub(), at, first), mode)
    before = 1 if mode == "cubic" else 0
    taps = []
    for i, weight in enumerate(weights):
        place = first if i == before else _add_scalar(call, first, i - before)
        if padding == "zeros":
            weight = _mask_in_range(call, place, 0, length - 1, weight)
        elif padding == "reflection":
            place = _reflect(call, place, low, high)
        taps.append((_clamp_to_index(call, place, length), weight))
    return taps


def _tap_weights(call: OnnxCall, rest: Tensor, mode: str) -> list[Tensor | None]:
    """Weights of the pixels around a position with fractional part `rest`."""
    if mode == "nearest":
        return [None]
    other = call.emit(ops.Sub(), call.builder.floats(1.0), rest)
    if mode == "linear":
        return [other, rest]
    a = _SHARPNESS
    near = [[a + 2, -(a + 3), 0.0, 1.0], [a, -5 * a, 8 * a, -4 * a]]
    places = ((rest, 1, 1), (rest, 0, 0), (other, 0, 0), (other, 1, 1))
    return [
        _polynomial(call, _add_scalar(call, t, shift) if shift else t, near[kind])
        for t, shift, kind in places
    ]


def _polynomial(call: OnnxCall, t: Tensor, factors: Sequence[float]) -> Tensor:
    total = _add_scalar(call, _mul_scalar(call, t, factors[0]), factors[1])
    for factor in factors[2:]:
        total = _add_scalar(call, call.emit(ops.Mul(), total, t), factor)
    return total


def _reflect(call: OnnxCall, at: Tensor, low: float, high: float) -> Tensor:
    """Coordinates reflected at both ends until they are in range."""
    reach = high - low
    if reach <= 0:
        return _mul_scalar(call, at, 0)
    away = call.emit(ops.Abs(), _add_scalar(call, at, -low))
    rest = call.emit(ops.Modulo(True), away, call.builder.floats(2 * reach))
    flipped = call.emit(ops.Abs(), _add_scalar(call, rest, -reach))
    return call.emit(ops.Sub(), call.builder.floats(low + reach), flipped)


def _mask_in_range(
    call: OnnxCall, at: Tensor, low: float, high: float, weight: Tensor | None
) -> Tensor:
    """`weight` (or 1) where `at` is in range, else 0."""
    above = call.emit(ops.LessOrEqual(), call.builder.floats(low), at)
    below = call.emit(ops.LessOrEqual(), at, call.builder.floats(high))
    there = call.emit(ops.And(), above, below)
    if weight is None:
        return call.convert(there, DType.F32)
    # Not a product: the weight of an infinite place is NaN.
    return call.emit(ops.Where(), there, weight, call.builder.floats(0.0))


def _clamp_to_index(call: OnnxCall, place: Tensor, length: int) -> Tensor:
    return call.convert(call.emit(ops.Clip(0.0, length - 1.0), place), DType.I32)


def _combine_taps(
    call: OnnxCall, rows: Tensor, size: Shape, image: Tensor, axes: Sequence[Sequence[Tap]],
) -> Tensor:  # fmt: skip
    """[positions..., c]: the sum of the weighted pixels of each position; `image`: index of the
    first row of each position's image."""
    total: Tensor | None = None
    for taps in itertools.product(*axes):
        at, weight = image, None
        for i, (place, factor) in enumerate(taps):
            step = call.constant(np.array(math.prod(size[i + 1 :]), np.int32))
            at = call.emit(ops.Add(), at, call.emit(ops.Mul(), place, step))
            if factor is not None:
                weight = factor if weight is None else call.emit(ops.Mul(), weight, factor)
        part = call.emit(ops.Gather(0), rows, at)
        if weight is not None:
            part = call.emit(ops.Mul(), part, call.reshape(weight, (*weight.shape, 1)))
        total = part if total is None else call.emit(ops.Add(), total, part)
    assert total is not None
    return total


def _flatten_pixels(call: OnnxCall, x: Tensor) -> Tensor:
    """[n, c, ...] → [n · pixels, c]"""
    order = [0, *range(2, len(x.shape)), 1]
    return call.reshape(call.transpose(x, order), (x.elements // x.shape[1], x.shape[1]))


def _channels_first(call: OnnxCall, x: Tensor) -> Tensor:
    rank = len(x.shape)
    return call.transpose(x, [0, rank - 1, *range(1, rank - 1)])


def _add_scalar(call: OnnxCall, x: Tensor, value: float) -> Tensor:
    return call.emit(ops.Add(), x, call.builder.floats(float(value)))


def _mul_scalar(call: OnnxCall, x: Tensor, value: float) -> Tensor:
    return call.emit(ops.Mul(), x, call.builder.floats(float(value)))


def affine_grid(call: OnnxCall) -> Tensor:
    """Sampling positions [n, ..., axes] of each pixel of an image of constant size."""
    theta, size = call.x(0), call.integers(1, "size")
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(size) < 1:
        raise ShapeError(f"expected a matrix for {list(size)}, found {list(theta.shape)}")
    call.builder.need_room((*size[2:], rank + 1), np.float32)
    spans = []
    for length in size[2:]:
        edge = 1.0 if call.integer("align_corners", 0) else 1 - 1 / length
        spans.append(np.linspace(-edge, edge, length) if length > 1 else np.zeros(1))
    places = np.stack([*np.meshgrid(*spans, indexing="ij")[::-1], np.ones(size[2:])], axis=-1)
    flat = call.constant(places.reshape(1, -1, rank + 1).astype(np.float32))
    y = call.emit(ops.MatMul(), flat, call.transpose(theta, (0, 2, 1)))
    return call.reshape(y, (size[0], *size[2:], rank))


def deform_conv(call: OnnxCall) -> Tensor:
    """A convolution whose window elements are displaced by computed offsets."""
    x, w, offset = call.x(0), call.value(1, "weights"), call.x(2)
    need_rank(x, 4)
    need_rank(offset, 4)
    n, depth, *size = x.shape
    oc, share, *window = w.shape
    groups, spread = call.integer("group", 1), call.integer("offset_group", 1)
    s = sliding(call, size, tuple(window), False)
    taps, out = math.prod(window), offset.shape[2:]
    fits = min(groups, spread) > 0 and depth == share * groups and not (oc % groups)
    if not fits or depth % spread or offset.shape[1] != spread * taps * 2:
        raise ShapeError(
            f"expected weights and offsets for {depth} channels, found {list(w.shape)} and "
            f"{list(offset.shape)}"
        )
    moved = call.reshape(offset, (n, spread, taps, 2, *out))
    moved = call.transpose(moved, (3, 1, 0, 4, 5, 2))  # [axis, group, n, oh, ow, tap]
    both = call.builder.emit_all(ops.Split(0, (1, 1)), [moved])
    call.builder.need_room((max(out), taps), np.int64)
    window_at = np.indices(window).reshape(2, -1)
    axes = []
    for i, part in enumerate(both):
        base = np.arange(out[i]) * s.stride[i] - s.before[i]
        base = base.reshape((-1, 1, 1) if i == 0 else (1, -1, 1))
        grid = base + window_at[i] * s.dilation[i]
        at = call.reshape(part, (spread, n, *out, taps))
        at = call.emit(ops.Add(), at, call.constant(grid.astype(np.float32)))
        axes.append(_axis_taps(call, at, size[i], "linear", "zeros", True))
    parts = [_sample_windows(call, x, axes, group, spread) for group in range(spread)]
    rows = parts[0] if spread == 1 else call.emit(ops.Concat(4), *parts)
    if call.maybe(4) is not None:
        mask = call.reshape(call.x(4), (n, spread, taps, *out))
        mask = call.reshape(call.transpose(mask, (0, 3, 4, 2, 1)), (n, *out, taps, spread, 1))
        rows = call.reshape(rows, (n, *out, taps, spread, depth // spread))
        rows = call.emit(ops.Mul(), rows, mask)
    return _grouped_product(call, call.reshape(rows, (n, *out, taps, groups, share)), w, groups)


def _sample_windows(
    call: OnnxCall, x: Tensor, axes: Sequence[Sequence[Tap]], group: int, groups: int
) -> Tensor:
    """[n, oh, ow, taps, c]: the pixels each window reads, for channels that share offsets."""
    depth, size = x.shape[1] // groups, x.shape[2:]
    taps = [
        [(_index_first_axis(call, at, group), _index_first_axis(call, by, group)) for at, by in own]
        for own in axes
    ]
    if groups > 1:
        begin, extent = (0, group * depth, 0, 0), (x.shape[0], depth, *size)
        x = call.emit(ops.StridedSlice(begin, (1,) * 4, extent, extent), x)
    call.builder.need_room(x.shape[:1], np.int64)
    starts = np.arange(x.shape[0]).reshape(-1, 1, 1, 1) * math.prod(size)
    image = call.constant(starts.astype(np.int32))
    return _combine_taps(call, _flatten_pixels(call, x), size, image, taps)


def _index_first_axis(call: OnnxCall, x: Tensor | None, index: int) -> Tensor:
    """x[index]"""
    assert x is not None
    begin, extent = (index, *(0,) * (len(x.shape) - 1)), (1, *x.shape[1:])
    ones = (1,) * len(x.shape)
    return call.emit(ops.StridedSlice(begin, ones, extent, x.shape[1:]), x)


def _grouped_product(call: OnnxCall, rows: Tensor, w: Array, groups: int) -> Tensor:
    """[n, oc, oh, ow] of rows [n, oh, ow, taps, groups, channels of a group]."""
    n, oh, ow, taps, _, share = rows.shape
    oc = w.shape[0] // groups
    parts = call.builder.emit_all(ops.Split(4, (1,) * groups), [rows])
    biases = None if call.maybe(3) is None else call.value(3, "bias").reshape(groups, oc)
    made = []
    for i, part in enumerate(parts):
        weights = w[i * oc : (i + 1) * oc].transpose(0, 2, 3, 1).reshape(oc, taps * share)
        flat = call.reshape(part, (n, oh, ow, taps * share))
        bias = None if biases is None else call.constant(biases[i])
        made.append(call.emit(ops.FullyConnected(True), flat, call.constant(weights), bias))
    return _channels_first(call, made[0] if groups == 1 else call.emit(ops.Concat(3), *made))

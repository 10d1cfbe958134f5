"""Import of ONNX operators that sample images at possibly computed, fractional positions.

Images are stored as rows of channels, one per pixel. Each position gathers the surrounding rows and
sums them with interpolation weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import Call
from edgekit.host.compiler.frontends.onnx.conv import sliding
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

_MODES = {
    "nearest": "nearest", "bilinear": "linear", "linear": "linear", "bicubic": "cubic",
    "cubic": "cubic",
}  # fmt: skip
_PADDINGS = ("zeros", "border", "reflection")
_SHARPNESS = -0.75  # coefficient of cubic interpolation

Tap = tuple[Tensor, Tensor | None]  # pixel index on one axis; its weight, None: 1


def grid_sample(call: Call) -> Tensor:
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
    y = _combine_taps(call, _flatten_pixels(call, x), size, image, taps, ops.Add())
    return _channels_first(call, y)


def _to_pixel_coordinates(call: Call, at: Tensor, length: int, corners: bool) -> Tensor:
    """Converts -1..1 to pixel coordinates, with the rounding of ONNX's reference."""
    at = _add_scalar(call, at, 1)
    if corners:
        return _mul_scalar(call, _mul_scalar(call, at, 0.5), length - 1)
    return _mul_scalar(call, _add_scalar(call, _mul_scalar(call, at, length), -1), 0.5)


def _axis_taps(
    call: Call, at: Tensor, length: int, mode: str, padding: str, corners: bool
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


def _tap_weights(call: Call, rest: Tensor, mode: str) -> list[Tensor | None]:
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


def _polynomial(call: Call, t: Tensor, factors: Sequence[float]) -> Tensor:
    total = _add_scalar(call, _mul_scalar(call, t, factors[0]), factors[1])
    for factor in factors[2:]:
        total = _add_scalar(call, call.emit(ops.Mul(), total, t), factor)
    return total


def _reflect(call: Call, at: Tensor, low: float, high: float) -> Tensor:
    """Coordinates reflected at both ends until they are in range."""
    reach = high - low
    if reach <= 0:
        return _mul_scalar(call, at, 0)
    away = call.emit(ops.Abs(), _add_scalar(call, at, -low))
    rest = call.emit(ops.Modulo(True), away, call.builder.floats(2 * reach))
    flipped = call.emit(ops.Abs(), _add_scalar(call, rest, -reach))
    return call.emit(ops.Sub(), call.builder.floats(low + reach), flipped)


def _mask_in_range(
    call: Call, at: Tensor, low: float, high: float, weight: Tensor | None
) -> Tensor:
    """`weight` (or 1) where `at` is in range, else 0."""
    above = call.emit(ops.LessOrEqual(), call.builder.floats(low), at)
    below = call.emit(ops.LessOrEqual(), at, call.builder.floats(high))
    there = call.emit(ops.And(), above, below)
    if weight is None:
        return call.convert(there, DType.F32)
    # Not a product: the weight of an infinite place is NaN.
    return call.emit(ops.Where(), there, weight, call.builder.floats(0.0))


def _clamp_to_index(call: Call, place: Tensor, length: int) -> Tensor:
    return call.convert(call.emit(ops.Clip(0.0, length - 1.0), place), DType.I32)


def _combine_taps(
    call: Call, rows: Tensor, size: Shape, image: Tensor, axes: Sequence[Sequence[Tap]],
    join: Operator,
) -> Tensor:  # fmt: skip
    """[positions..., c]: the weighted pixels of each position, combined by `join`; `image`: index
    of the first row of each position's image."""
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
        total = part if total is None else call.emit(join, total, part)
    assert total is not None
    return total


def _flatten_pixels(call: Call, x: Tensor) -> Tensor:
    """[n, c, ...] → [n · pixels, c]"""
    order = [0, *range(2, len(x.shape)), 1]
    return call.reshape(call.transpose(x, order), (x.elements // x.shape[1], x.shape[1]))


def _channels_first(call: Call, x: Tensor) -> Tensor:
    rank = len(x.shape)
    return call.transpose(x, [0, rank - 1, *range(1, rank - 1)])


def _add_scalar(call: Call, x: Tensor, value: float) -> Tensor:
    return call.emit(ops.Add(), x, call.builder.floats(float(value)))


def _mul_scalar(call: Call, x: Tensor, value: float) -> Tensor:
    return call.emit(ops.Mul(), x, call.builder.floats(float(value)))


def affine_grid(call: Call) -> Tensor:
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


def roi_align(call: Call) -> Tensor:
    """[regions, c, oh, ow]: mean or maximum of samples in each bin; regions may be computed."""
    x, regions, images = call.x(0), call.x(1), call.x(2)
    need_rank(x, 4)
    high, wide = call.integer("output_height", 1), call.integer("output_width", 1)
    samples, count = call.integer("sampling_ratio", 0), images.elements
    if min(high, wide, samples + 1) < 1 or regions.shape != (count, 4) or not count:
        raise ShapeError(
            "expected regions, an output size and a sampling_ratio of at least 0, "
            f"found {list(regions.shape)}, {high}x{wide} and {samples}"
        )
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    half = call.text("coordinate_transformation_mode", usual) == "half_pixel"
    scaled = _mul_scalar(call, regions, call.number("spatial_scale", 1.0))
    scaled = _add_scalar(call, scaled, -0.5) if half else scaled
    edges = call.builder.emit_all(ops.Split(1, (1,) * 4), [scaled])
    axes, grids, places = [], [], ((0, high, edges[1], edges[3]), (1, wide, edges[0], edges[2]))
    for axis, bins, start, end in places:
        extent = call.emit(ops.Sub(), end, start)
        if not half:
            extent = call.emit(ops.Maximum(), extent, call.builder.floats(1.0))
        grid = _sampling_grid(call, extent, bins, samples, x.shape[2 + axis])
        across = call.emit(ops.Mul(), call.reshape(extent, (count, 1, 1)), grid.steps)
        at = call.emit(ops.Add(), across, call.reshape(start, (count, 1, 1)))
        shape = (count, bins * grid.most, 1) if axis == 0 else (count, 1, bins * grid.most)
        axes.append(_region_taps(call, call.reshape(at, shape), x.shape[2 + axis]))
        grids.append(grid)
    pixels = call.constant(np.array(x.shape[2] * x.shape[3], np.int32))
    first = call.emit(ops.Mul(), call.convert(images, DType.I32), pixels)
    largest = call.text("mode", "avg") == "max"
    image = call.reshape(first, (count, 1, 1))
    y = _combine_taps(
        call,
        _flatten_pixels(call, x),
        x.shape[2:],
        image,
        axes,
        ops.Maximum() if largest else ops.Add(),
    )
    for axis, bins, grid in zip((2, 1), (wide, high), reversed(grids), strict=True):
        y = _pool_samples(call, y, axis, bins, grid, largest)
    return _channels_first(call, y)


@dataclass(frozen=True, eq=False)
class _Grid:
    """Samples along one axis of each region: at most `most` per bin, at `steps` [count or 1, bins,
    most] as fractions of the region; `count` [count] of them are valid, None: all."""

    most: int
    steps: Tensor
    count: Tensor | None


def _sampling_grid(call: Call, extent: Tensor, bins: int, samples: int, length: int) -> _Grid:
    """A grid of `samples` per bin, or about one per pixel if 0."""
    number = call.counting((1, bins, 1), np.float32)
    if samples:
        call.builder.need_room((samples,), np.float64)
        share = call.constant(((np.arange(samples) + 0.5) / samples).astype(np.float32))
        return _Grid(
            samples, _mul_scalar(call, call.emit(ops.Add(), number, share), 1 / bins), None
        )
    count = call.emit(ops.Ceil(), _mul_scalar(call, extent, 1 / bins))
    if count.data is not None:
        most = max(int(np.max(count.data, initial=1)), 1)
    else:
        most = -(-length // bins)
        call.builder.note(
            f"{call.node.shown}: regions larger than the image get too few samples; clip them to "
            "the image"
        )
    count = call.emit(ops.Clip(0.0, float(most)), count)
    call.builder.need_room((most,), np.float32)
    each = call.constant((np.arange(most, dtype=np.float32) + 0.5).reshape(1, 1, most))
    there = call.emit(ops.Maximum(), count, call.builder.floats(1.0))
    share = call.emit(ops.Div(), each, call.reshape(there, (count.elements, 1, 1)))
    steps = _mul_scalar(call, call.emit(ops.Add(), number, share), 1 / bins)
    return _Grid(most, steps, call.reshape(count, (count.elements,)))


def _pool_samples(
    call: Call, y: Tensor, axis: int, bins: int, grid: _Grid, largest: bool
) -> Tensor:
    """The mean or maximum over the samples of each bin along `axis` of [regions, h, w, c]."""
    y = call.reshape(y, (*y.shape[:axis], bins, grid.most, *y.shape[axis + 1 :]))
    if grid.count is None:
        return call.emit(ops.ReduceMax((axis + 1,)) if largest else ops.Mean((axis + 1,)), y)
    ones = [1] * len(y.shape)
    ones[axis + 1] = grid.most
    number = call.counting(ones, np.float32)
    count = call.reshape(grid.count, (y.shape[0], *(1,) * (len(y.shape) - 1)))
    there = call.emit(ops.Less(), number, count)
    none = call.builder.floats(-math.inf if largest else 0.0)
    y = call.emit(ops.Where(), there, y, none)
    some = call.emit(ops.Maximum(), grid.count, call.builder.floats(1.0))
    some = call.reshape(some, (y.shape[0], *(1,) * (len(y.shape) - 2)))
    if not largest:
        return call.emit(ops.Div(), call.emit(ops.ReduceSum((axis + 1,)), y), some)
    best = call.emit(ops.ReduceMax((axis + 1,)), y)
    empty = call.emit(ops.Less(), best, call.builder.floats(-3e38))
    return call.emit(ops.Where(), empty, call.builder.floats(0.0), best)


def _region_taps(call: Call, at: Tensor, length: int) -> list[Tap]:
    """Two pixels per position; positions more than one pixel outside count as 0."""
    inner = call.emit(ops.Clip(0.0, length - 1.0), at)
    first = call.emit(ops.Floor(), inner)
    weights = _tap_weights(call, call.emit(ops.Sub(), inner, first), "linear")
    places = (first, _add_scalar(call, first, 1))
    return [
        (_clamp_to_index(call, place, length), _mask_in_range(call, at, -1, length, weight))
        for place, weight in zip(places, weights, strict=True)
    ]


def deform_conv(call: Call) -> Tensor:
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
    call: Call, x: Tensor, axes: Sequence[Sequence[Tap]], group: int, groups: int
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
    return _combine_taps(call, _flatten_pixels(call, x), size, image, taps, ops.Add())


def _index_first_axis(call: Call, x: Tensor | None, index: int) -> Tensor:
    """x[index]"""
    assert x is not None
    begin, extent = (index, *(0,) * (len(x.shape) - 1)), (1, *x.shape[1:])
    ones = (1,) * len(x.shape)
    return call.emit(ops.StridedSlice(begin, ones, extent, x.shape[1:]), x)


def _grouped_product(call: Call, rows: Tensor, w: Array, groups: int) -> Tensor:
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

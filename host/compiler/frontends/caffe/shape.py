"""Import of Caffe's layers that move data."""

from __future__ import annotations

import itertools
import math

import numpy as np

from edgekit.host.compiler.frontends.caffe.call import CaffeCall
from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import ShapeError, Tensor

_SIZE_LIMIT = 1 << 16


def identity(call: CaffeCall) -> list[Tensor]:
    """The bottom under the name of each top."""
    return [call.x(0)] * len(call.layer.tops)


def _old_axis(call: CaffeCall, x: Tensor, old: str) -> int:
    return call.axis(x, old if call.has(old) else "axis")


def concat(call: CaffeCall) -> Tensor:
    parts = call.all()
    axis = _old_axis(call, parts[0], "concat_dim")
    return parts[0] if len(parts) == 1 else call.emit(ops.Concat(axis), *parts)


def slice_(call: CaffeCall) -> list[Tensor]:
    x, count = call.x(0), len(call.layer.tops)
    axis = _old_axis(call, x, "slice_dim")
    size, points = x.shape[axis], call.integers("slice_point", 1)
    if points:
        ends = [0, *points, size]
        sizes = [b - a for a, b in itertools.pairwise(ends)]
    else:
        sizes = [size // count] * count
    if len(sizes) != count or min(sizes) < 1 or sum(sizes) != size:
        raise ShapeError(f"expected {count} parts of {size}, found {sizes[:8]}")
    return [x] if count == 1 else call.builder.emit_all(ops.Split(axis, tuple(sizes)), [x])


def flatten(call: CaffeCall) -> Tensor:
    x = call.only()
    first, last = call.axis(x), call.axis(x, "end_axis")
    if last < first:
        raise ShapeError(f"expected end_axis at or after axis {first}, found {last}")
    middle = math.prod(x.shape[first : last + 1])
    return call.reshape(x, (*x.shape[:first], middle, *x.shape[last + 1 :]))


def reshape(call: CaffeCall) -> Tensor:
    x = call.only()
    first = call.axis(x, beyond=1)
    count = call.integer("num_axes", -1)
    last = len(x.shape) if count == -1 else first + count
    if last > len(x.shape):
        raise ShapeError(f"expected axes of {list(x.shape)}, found {count} from axis {first} on")
    dims = [int(d) for d in call.layer.parameters.shape.dim]
    for i, d in enumerate(dims):
        if d == 0 and first + i >= len(x.shape):
            raise ShapeError(f"expected a dimension to copy, found none for {dims[:8]}")
        dims[i] = x.shape[first + i] if d == 0 else d
    if dims.count(-1) > 1 or any(d < 1 and d != -1 for d in dims):
        raise ShapeError(f"expected dimensions and at most one of -1, found {dims[:8]}")
    kept = math.prod(d for d in dims if d != -1)
    inside = math.prod(x.shape[first:last])
    dims = [inside // kept if d == -1 else d for d in dims]
    if math.prod(dims) != inside:
        raise ShapeError(f"expected a shape of {inside} elements, found {dims[:8]}")
    return call.reshape(x, (*x.shape[:first], *dims, *x.shape[last:]))


def permute(call: CaffeCall) -> Tensor:
    x, order = call.only(), call.integers("order", 0)
    order += [i for i in range(len(x.shape)) if i not in order]
    if sorted(order) != list(range(len(x.shape))):
        raise ShapeError(f"expected an order of {len(x.shape)} axes, found {order[:8]}")
    return call.transpose(x, order)


def crop(call: CaffeCall) -> Tensor:
    """Crops the first bottom to the size of the second."""
    x, like, offsets = call.x(0), call.x(1), call.integers("offset", 0)
    axis, rank = call.axis(x), len(x.shape)
    if len(offsets) not in (0, 1, rank - axis) or len(like.shape) != rank:
        raise ShapeError(
            f"expected 1 offset or {rank - axis} and two bottoms of one rank, "
            f"found {len(offsets)} and {list(like.shape)}"
        )
    spread = offsets if len(offsets) > 1 else (offsets or [0]) * (rank - axis)
    begin = (*(0,) * axis, *spread)
    extent = (*x.shape[:axis], *like.shape[axis:])
    if any(b + e > d for b, e, d in zip(begin, extent, x.shape, strict=True)):
        raise ShapeError(f"expected a part of {list(x.shape)}, found {extent} from {begin} on")
    if extent == x.shape:
        return x
    return call.emit(ops.StridedSlice(begin, (1,) * rank, extent, extent), x)


def tile(call: CaffeCall) -> Tensor:
    x, count = call.only(), call.integer("tiles", 1)
    axis = call.axis(x)
    if count == 1:
        return x
    wide = call.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
    spread = call.emit(ops.BroadcastTo((*x.shape[:axis], count, *x.shape[axis:])), wide)
    return call.reshape(spread, (*x.shape[:axis], count * x.shape[axis], *x.shape[axis + 1 :]))


def shuffle_channel(call: CaffeCall) -> Tensor:
    x, groups = call.only(), call.integer("group", 1)
    need_rank(x, 4)
    n, c, h, w = x.shape
    if c % groups:
        raise ShapeError(f"expected groups that divide {c} channels, found {groups}")
    parts = call.reshape(call.nhwc(x), (n, h, w, groups, c // groups))
    mixed = call.emit(ops.Transpose((0, 1, 2, 4, 3)), parts)
    return call.nchw(call.reshape(mixed, (n, h, w, c)))


def upsample(call: CaffeCall) -> Tensor:
    """Repeats each pixel; the variant with a max-pooling mask is refused."""
    x, factor = call.only(), call.integer("scale", 1)
    need_rank(x, 4)
    y = x
    for axis in (2, 3):
        _need_size(x.shape[axis] * factor)
        call.builder.need_room((x.shape[axis] * factor,), np.int64)
        index = np.repeat(np.arange(x.shape[axis], dtype=np.int64), factor)
        y = call.emit(ops.Gather(axis), y, call.constant(index))
    return y


def interp(call: CaffeCall) -> Tensor:
    """Bilinear with aligned corners."""
    x = call.only()
    need_rank(x, 4)
    if call.integer("pad_beg") or call.integer("pad_end"):
        raise ShapeError("expected pad_beg and pad_end of 0, found padding")
    shrink, zoom = call.integer("shrink_factor", 1), call.integer("zoom_factor", 1)
    sizes = []
    for axis, name in ((2, "height"), (3, "width")):
        size = (x.shape[axis] - 1) // shrink + 1
        size += (size - 1) * (zoom - 1)
        sizes.append(call.integer(name, 1) if call.has(name) else size)
        _need_size(sizes[-1])
    op = ops.ResizeBilinear((sizes[0], sizes[1]), True, False)
    return call.nchw(call.emit(op, call.nhwc(x)))


def _need_size(size: int) -> None:
    if size > _SIZE_LIMIT:
        raise ShapeError(f"expected a size of at most {_SIZE_LIMIT}, found {size}")

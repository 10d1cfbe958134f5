"""Import of ONNX operators that move data or compute shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_parts, need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import crop, surround
from edgekit.host.compiler.frontends.onnx.random import dropped
from edgekit.host.compiler.frontends.onnx.types import Texts, texts_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, MisfitError, Shape, ShapeError, Tensor

_LIMIT = 1 << 28  # elements of a constant created here


def constant(call: OnnxCall) -> Tensor | Texts:
    for name in ("value_string", "value_strings"):
        if call.has(name):
            found = call.attributes[name]
            return texts_of(call.builder, np.array(found, object))
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if call.has(name):
            found = call.attributes[name]
            if name == "value":
                if not isinstance(found, np.ndarray):
                    raise ShapeError(f"expected a tensor as value, found {found!r:.40}")
                is_text = found.dtype.kind == "O"
                return texts_of(call.builder, found) if is_text else call.constant(found)
            numbers = found if isinstance(found, tuple) else (found,)
            wanted = (int, float) if "float" in name else (int,)
            if not all(isinstance(v, wanted) for v in numbers):
                raise ShapeError(f"expected numbers as {name}, found {found!r:.40}")
            return call.constant(np.array(found, np.float32 if "float" in name else np.int64))
    raise ShapeError(
        f"expected a constant of numbers, found {', '.join(call.attributes) or 'none'}"
    )


def constant_of_shape(call: OnnxCall) -> Tensor:
    shape = checked_shape(call.integers(0, "shape"))
    filler = call.attributes.get("value")
    value = np.zeros(1, np.float32) if filler is None else np.asarray(filler).reshape(-1)
    return call.filled(shape, value[0], value.dtype)


def checked_shape(values: Sequence[int]) -> Shape:
    # Check the other sizes even if one is 0: NumPy multiplies them too.
    if any(v < 0 for v in values) or math.prod(max(v, 1) for v in values) > _LIMIT:
        raise ShapeError(f"expected a shape of at most {_LIMIT} elements, found {list(values)}")
    return tuple(values)


def shape_of(call: OnnxCall) -> Tensor:
    rank = len(call.x(0).shape)
    start, end, _ = slice(call.integer("start", 0), call.integer("end", rank)).indices(rank)
    return call.constant(np.array(call.x(0).shape[start:end], np.int64))


def size_of(call: OnnxCall) -> Tensor:
    return call.constant(np.array(call.x(0).elements, np.int64))


def identity(call: OnnxCall) -> Tensor:
    return call.x(0)


def dropout(call: OnnxCall) -> list[Tensor]:
    """At inference the identity, and a mask of ones if requested."""
    x = call.x(0)
    training = call.maybe(2)
    if training is not None and training.data is None:
        raise ShapeError("expected a constant training_mode, found a computed tensor")
    ratio = 0.5 if call.maybe(1) is None else _one_number(call, 1, "ratio")
    if training is not None and bool(np.any(training.data)) and ratio > 0:
        return dropped(call, x, ratio)
    mask = call.filled(x.shape, 1, np.bool_) if len(call.node.outputs) > 1 else x
    return [x, mask]


def _one_number(call: OnnxCall, index: int, what: str) -> float:
    values = call.numbers(index, what)
    if len(values) != 1:
        raise ShapeError(f"expected one number as {what}, found {len(values)}")
    return values[0]


def reshape(call: OnnxCall) -> Tensor:
    x = call.x(0)
    shape = list(call.integers(1, "shape"))
    if not call.integer("allowzero", 0):
        for i, v in enumerate(shape):
            if v == 0 and i < len(x.shape):
                shape[i] = x.shape[i]
    if shape.count(-1) == 1:
        known = math.prod(v for v in shape if v != -1)
        shape[shape.index(-1)] = x.elements // known if known else 0
    return call.reshape(x, tuple(shape))


def flatten(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axis = call.integer("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        raise ShapeError(f"expected an axis within {len(x.shape)} dimensions, found {axis}")
    axis = axis + len(x.shape) if axis < 0 else axis
    return call.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def squeeze(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axes = call.axes(len(x.shape))
    if axes is None:
        axes = tuple(i for i, d in enumerate(x.shape) if d == 1)
    if any(x.shape[a] != 1 for a in axes):
        raise MisfitError(f"expected axes of size 1, found {list(axes)} of {list(x.shape)}")
    return call.reshape(x, tuple(d for i, d in enumerate(x.shape) if i not in axes))


def unsqueeze(call: OnnxCall) -> Tensor:
    x = call.x(0)
    given = call.integers(1, "axes")
    rank = len(x.shape) + len(given)
    axes = {call.axis(a, rank) for a in given}
    if len(axes) != len(given):
        raise ShapeError(f"expected distinct axes, found {list(given)}")
    rest = iter(x.shape)
    return call.reshape(x, tuple(1 if i in axes else next(rest) for i in range(rank)))


def transpose(call: OnnxCall) -> Tensor:
    x = call.x(0)
    order = call.list("perm", tuple(reversed(range(len(x.shape)))))
    return call.emit(ops.Transpose(order), x)


def concat(call: OnnxCall) -> Tensor:
    parts = call.all()
    axis = call.axis(call.integer("axis", 1 if call.opset < 4 else None), len(parts[0].shape))
    kept = [p for p in parts if p.elements] or parts[:1]
    return kept[0] if len(kept) == 1 else call.emit(ops.Concat(axis), *kept)


def split(call: OnnxCall) -> list[Tensor]:
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    if call.maybe(1) is not None:
        sizes = call.integers(1, "sizes") if call.opset > 1 else call.whole_numbers(1, "sizes")
    else:
        count = call.integer("num_outputs", len(call.node.outputs))
        if not 1 <= count <= max(x.shape[axis], 1):
            raise ShapeError(f"expected 1 to {x.shape[axis]} parts, found {count}")
        need_parts(count)
        part = -(-x.shape[axis] // count)
        sizes = tuple(min(part, x.shape[axis] - i * part) for i in range(count))
    return call.split(x, axis, sizes)


def slice_(call: OnnxCall) -> Tensor:
    x = call.x(0)
    starts, ends = call.integers(1, "starts"), call.integers(2, "ends")
    axes = tuple(range(len(starts))) if call.maybe(3) is None else call.integers(3, "axes")
    steps = (1,) * len(starts) if call.maybe(4) is None else call.integers(4, "steps")
    return slice_by(call, x, starts, ends, axes, steps)


def slice_by(
    call: OnnxCall, x: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int],
    steps: Sequence[int],
) -> Tensor:  # fmt: skip
    rank = len(x.shape)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ShapeError(
            f"expected one start, end and step (not 0) per axis, found {list(starts[:9])}, "
            f"{list(ends[:9])} and {list(steps[:9])} for {list(axes[:9])}"
        )
    begin, stride, extent = [0] * rank, [1] * rank, list(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = call.axis(axis, rank)
        picked = range(*slice(start, end, step).indices(x.shape[at]))
        begin[at], stride[at], extent[at] = (picked[0] if picked else 0), step, len(picked)
    if 0 in extent:
        return call.constant(np.zeros(extent, x.dtype.numpy if x.data is None else x.data.dtype))
    if tuple(extent) == x.shape and all(s == 1 for s in stride):
        return x
    shape = tuple(extent)
    return call.emit(ops.StridedSlice(tuple(begin), tuple(stride), shape, shape), x)


def expand(call: OnnxCall) -> Tensor:
    x = call.x(0)
    asked = call.integers(1, "shape")
    try:
        shape = np.broadcast_shapes(x.shape, checked_shape(asked))
    except ValueError:
        raise MisfitError(f"expected a shape for {list(x.shape)}, found {list(asked)}") from None
    return x if shape == x.shape else call.emit(ops.BroadcastTo(shape), x)


def tile(call: OnnxCall) -> Tensor:
    x = call.x(0)
    if call.opset < 6:  # one axis, and both numbers in the type of x
        count, at = (*call.whole_numbers(1, "tiles"), *call.whole_numbers(2, "axis"))
        axis = call.axis(at, len(x.shape))
        times = tuple(count if i == axis else 1 for i in range(len(x.shape)))
    else:
        times = call.integers(1, "repeats")
    if len(times) != len(x.shape) or min(times, default=1) < 1:
        raise ShapeError(f"expected {len(x.shape)} repeats, found {list(times)}")
    for axis, count in enumerate(times):
        if count > 1:
            parts = call.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
            wide = (*x.shape[:axis], count, *x.shape[axis:])
            repeated = call.emit(ops.BroadcastTo(wide), parts)
            x = call.reshape(
                repeated, (*x.shape[:axis], count * x.shape[axis], *x.shape[axis + 1 :])
            )
    return x


def pad(call: OnnxCall) -> Tensor:
    x = call.x(0)
    rank = len(x.shape)
    pads = call.integers(1, "pads")
    axes = call.integers(3, "axes") if call.maybe(3) is not None else tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"expected {2 * len(axes)} pads, found {len(pads)}")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        at = call.axis(axis, rank)
        before[at], after[at] = pads[i], pads[i + len(axes)]
    x = crop(call, x, [max(-b, 0) for b in before], [max(-a, 0) for a in after])
    before, after = [max(b, 0) for b in before], [max(a, 0) for a in after]
    mode = call.text("mode", "constant")
    if mode == "constant":
        given = (0.0,) if call.maybe(2) is None else call.numbers(2, "value")
        if len(given) != 1:
            raise ShapeError(f"expected one value to pad with, found {len(given)}")
        return surround(call, x, before, after, given[0])
    if mode not in ("reflect", "edge", "wrap"):
        raise ShapeError(f"expected mode constant, reflect, edge or wrap, found {mode}")
    for axis in range(rank):
        if before[axis] or after[axis]:
            whole = before[axis] + x.shape[axis] + after[axis]
            call.builder.need_room((whole,), np.int64)
            index = _pad_indices(x.shape[axis], before[axis], after[axis], mode)
            x = call.emit(ops.Gather(axis), x, call.constant(index))
    return x


def _pad_indices(size: int, before: int, after: int, mode: str) -> Array:
    """The source element of each position of a padded axis."""
    at = np.arange(-before, size + after, dtype=np.int64)
    if mode == "edge":
        return np.clip(at, 0, size - 1)
    if mode == "wrap" or size == 1:
        return at % size
    period = 2 * (size - 1)
    inside: Array = np.minimum(at % period, period - at % period)
    return inside


def depth_to_space(call: OnnxCall) -> Tensor:
    x, block = call.x(0), call.integer("blocksize")
    need_rank(x, 4)
    n, c, h, w = x.shape
    if block < 1 or c % (block * block):
        raise ShapeError(f"expected channels divisible by {block**2}, found {c}")
    inner = c // (block * block)
    if call.text("mode", "DCR") == "DCR":
        return call.nchw(call.emit(ops.DepthToSpace(block), call.nhwc(x)))
    parts = call.reshape(x, (n, inner, block, block, h, w))
    moved = call.emit(ops.Transpose((0, 1, 4, 2, 5, 3)), parts)
    return call.reshape(moved, (n, inner, h * block, w * block))


def space_to_depth(call: OnnxCall) -> Tensor:
    x, block = call.x(0), call.integer("blocksize")
    need_rank(x, 4)
    n, c, h, w = x.shape
    if block < 1 or h % block or w % block:
        raise ShapeError(f"expected an image divisible by {block}, found {h}x{w}")
    parts = call.reshape(x, (n, c, h // block, block, w // block, block))
    order = (0, 3, 5, 1, 2, 4) if call.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = call.emit(ops.Transpose(order), parts)
    return call.reshape(moved, (n, c * block * block, h // block, w // block))


def trilu(call: OnnxCall) -> Tensor:
    x = call.x(0)
    k = 0 if call.maybe(1) is None else call.single(1, "diagonal")
    if len(x.shape) < 2:
        raise ShapeError(f"expected matrices, found a tensor of shape {list(x.shape)}")
    rows, columns = x.shape[-2:]
    call.builder.need_room((rows, columns), np.bool_)
    k = min(max(k, -rows - 1), columns + 1)  # further out, all elements are zero or all are kept
    if call.integer("upper", 1):
        mask = ~np.tri(rows, columns, k - 1, dtype=np.bool_)
    else:
        mask = np.tri(rows, columns, k, dtype=np.bool_)
    return call.emit(ops.Where(), call.constant(mask), x, call.scalar(0, x))


def eye_like(call: OnnxCall) -> Tensor:
    x = call.x(0)
    need_rank(x, 2)
    kind = call.dtype(call.integer("dtype")) if call.has("dtype") else x.dtype
    call.builder.need_room(x.shape, kind.numpy)
    return call.constant(np.eye(x.shape[0], x.shape[1], k=call.integer("k", 0), dtype=kind.numpy))

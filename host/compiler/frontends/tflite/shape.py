"""Import of TensorFlow Lite operators that only move data."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Operator, ShapeError, Tensor
from edgekit.host.compiler.ir.windows import Pair

_RANGE_LIMIT = 1 << 24
_NEW = -1  # an axis absent from the input
_SIZE_LIMIT = 1 << 16  # pixels per side of a resized image


def _emit_on_input(call: TfliteCall, op: Operator) -> Tensor:
    """Emits `op` on the first input."""
    return call.result(op, call.tensor(0, "input"))


def _sliced_out(call: TfliteCall, op: ops.StridedSlice) -> Tensor:
    """Emits `op` on the first input. Empty slices, which loops take before their first and after
    their last element, are constants."""
    if min(op.extent, default=1) != 0:
        return _emit_on_input(call, op)
    x = call.tensor(0, "input")
    if any(n < 0 for n in op.shape):
        raise ShapeError(f"expected sizes of at least 0, found {list(op.extent)}")
    return call.quantized(np.zeros(op.shape, x.dtype.numpy), x.quant)


def concatenation(call: TfliteCall) -> Tensor:
    activation, rank = call.activation(), len(call.tensor(0, "operand").shape)
    parts = [t for t in call.all() if t.elements] or call.all()
    y = call.result(ops.Concat(call.axis(call.option("Axis"), rank)), *parts)
    return y if activation is Activation.NONE else call.result(ops.Clamp(activation), y)


def pack(call: TfliteCall) -> Tensor:
    shape = call.tensor(0, "operand").shape
    axis = call.axis(call.option("Axis"), len(shape) + 1)
    if any(t.shape != shape for t in call.all()):
        raise ShapeError(
            f"expected operands of one shape, found {[list(t.shape) for t in call.all()][:9]}"
        )
    parts = [call.reshape(t, (*shape[:axis], 1, *shape[axis:])) for t in call.all()]
    return call.result(ops.Concat(axis), *parts)


def unpack(call: TfliteCall) -> list[Tensor]:
    x = call.tensor(0, "input")
    axis = call.axis(call.option("Axis"), len(x.shape))
    count = x.shape[axis]
    if count != len(call.outputs):
        raise ShapeError(f"expected {count} outputs, found {len(call.outputs)}")
    parts = [x] if count == 1 else call.results(ops.Split(axis, (1,) * count), x)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [call.reshape(t, rest) for t in parts]


def split(call: TfliteCall) -> list[Tensor]:
    shape = call.tensor(1, "input").shape
    axis = call.axis(call.integer(0, "axis"), len(shape))
    parts = len(call.outputs)
    if parts == 0 or shape[axis] % parts:
        raise ShapeError(f"expected equal parts of {shape[axis]}, found {parts} parts")
    op = ops.Split(axis, (shape[axis] // parts,) * parts)
    return call.results(op, call.tensor(1, "input"))


def split_v(call: TfliteCall) -> list[Tensor]:
    shape = call.tensor(0, "input").shape
    axis = call.axis(call.integer(2, "axis"), len(shape))
    sizes = list(call.integers(1, "part sizes"))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    if 0 in sizes and len(sizes) == len(call.outputs):
        return call.split(call.tensor(0, "input"), axis, sizes)
    return call.results(ops.Split(axis, tuple(sizes)), call.tensor(0, "input"))


def reshape(call: TfliteCall) -> Tensor:
    wanted = call.operator.option_vector("NewShape")
    if call.maybe(1) is not None:
        wanted = call.integers(1, "new shape")
    if wanted is None:
        raise ShapeError("expected a new shape, found none")
    shape = list(wanted)
    if shape.count(-1) == 1:
        rest = -math.prod(shape)
        total = math.prod(call.tensor(0, "input").shape)
        shape[shape.index(-1)] = total // rest if rest > 0 else -1
    return _emit_on_input(call, ops.Reshape(tuple(shape)))


def squeeze(call: TfliteCall) -> Tensor:
    shape = call.tensor(0, "input").shape
    axes = [call.axis(a, len(shape)) for a in call.operator.option_vector("SqueezeDims") or ()]
    axes = axes or [i for i, d in enumerate(shape) if d == 1]
    if any(shape[a] != 1 for a in axes):
        raise ShapeError(f"expected axes {axes} of size 1, found {list(shape)}")
    return _emit_on_input(call, ops.Reshape(tuple(d for i, d in enumerate(shape) if i not in axes)))


def expand_dims(call: TfliteCall) -> Tensor:
    shape = call.tensor(0, "input").shape
    axis = call.axis(call.integer(1, "axis"), len(shape) + 1)
    return _emit_on_input(call, ops.Reshape((*shape[:axis], 1, *shape[axis:])))


def transpose(call: TfliteCall) -> Tensor:
    rank = len(call.tensor(0, "input").shape)
    return _emit_on_input(
        call, ops.Transpose(tuple(call.axis(p, rank) for p in call.integers(1, "permutation")))
    )


def pad(call: TfliteCall) -> Tensor:
    rows = call.rows(1, "paddings", len(call.tensor(0, "input").shape))
    return _emit_on_input(call, ops.Pad(tuple(rows[:, 0].tolist()), tuple(rows[:, 1].tolist())))


def pad_v2(call: TfliteCall) -> Tensor:
    """Pads with a value by concatenating constants on both sides of each axis."""
    x, value = call.tensor(0, "input"), call.value(2, "value")
    if value.size != 1:
        raise ShapeError(f"expected one value to pad with, found {value.size}")
    for axis, sizes in enumerate(call.rows(1, "paddings", len(x.shape)).tolist()):
        if not all(0 <= s <= _SIZE_LIMIT for s in sizes):
            raise ShapeError(f"expected paddings from 0 to {_SIZE_LIMIT}, found {sizes}")
        parts = [x]
        for at, size in zip((0, 2), sizes, strict=True):
            if size:
                shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
                part = call.filled(shape, value.reshape(()), x.dtype.numpy)
                parts.insert(
                    at, part if x.quant is None else call.builder.with_quant(part, x.quant)
                )
        if len(parts) > 1:
            x = call.result(ops.Concat(axis), *parts)
    return x


def strided_slice(call: TfliteCall) -> Tensor:
    shape = call.tensor(0, "input").shape
    begins, ends = call.integers(1, "begin"), call.integers(2, "end")
    strides = call.integers(3, "strides")
    if not len(begins) == len(ends) == len(strides):
        raise ShapeError(f"expected begin, end and strides of one length, found {len(begins)}")
    begin: list[int] = []
    extent: list[int] = []
    steps: list[int] = []
    out: list[int] = []
    for i in _slice_index_per_axis(call, len(begins), len(shape)):
        if i == _NEW:
            out.append(1)
            continue
        size = shape[len(begin)]
        first, last, step = (None, None, 1) if i is None else _slice_bounds(call, i, size)
        picked = range(size)[slice(first, last, step)]
        begin.append(picked.start)
        steps.append(step)
        extent.append(len(picked))
        if i is None or not call.option("ShrinkAxisMask") >> i & 1:
            out.append(len(picked))
    return _sliced_out(
        call, ops.StridedSlice(tuple(begin), tuple(steps), tuple(extent), tuple(out))
    )


def _slice_index_per_axis(call: TfliteCall, count: int, rank: int) -> list[int | None]:
    """For each axis the index of its slice, None if it is kept, `_NEW` for an added axis."""
    ellipsis, new = call.option("EllipsisMask"), call.option("NewAxisMask")
    if ellipsis & (ellipsis - 1):
        raise ShapeError(f"expected one ellipsis at most, found mask {ellipsis}")
    dots = [i for i in range(count) if ellipsis >> i & 1]
    extra = [i for i in range(count) if new >> i & 1 and i not in dots]
    missing = rank - (count - len(dots) - len(extra))
    if missing < 0:
        raise ShapeError(f"expected slices of at most {rank} dimensions, found {rank - missing}")
    found: list[int | None] = []
    for i in range(count):
        if i in dots:
            found += [None] * missing
        else:
            found.append(_NEW if i in extra else i)
    return found if dots else found + [None] * missing


def _slice_bounds(call: TfliteCall, i: int, size: int) -> tuple[int | None, int | None, int]:
    """Begin, end and step of slice `i` of an axis."""
    begin, end, step = (call.integers(n, "slice")[i] for n in (1, 2, 3))
    if step == 0:
        raise ShapeError("expected strides other than 0, found 0")
    if call.option("ShrinkAxisMask") >> i & 1:
        first = begin + size if begin < 0 else begin
        return first, first + 1, 1
    start = None if call.option("BeginMask") >> i & 1 else begin
    last = None if call.option("EndMask") >> i & 1 else end
    if call.option("Offset") and start is not None and last is not None:
        last += start
    return start, last, step


def slice_(call: TfliteCall) -> Tensor:
    shape = call.tensor(0, "input").shape
    begin, sizes = call.integers(1, "begin"), call.integers(2, "size")
    if not len(begin) == len(sizes) == len(shape):
        raise ShapeError(
            f"expected begin and size for {len(shape)} dimensions, found {len(begin)} and "
            f"{len(sizes)}"
        )
    extent = tuple(d - b if s == -1 else s for d, b, s in zip(shape, begin, sizes, strict=True))
    return _sliced_out(call, ops.StridedSlice(begin, (1,) * len(shape), extent, extent))


def depth_to_space(call: TfliteCall) -> Tensor:
    return _emit_on_input(call, ops.DepthToSpace(call.option("BlockSize")))


def _block_and_borders(call: TfliteCall) -> tuple[Pair, tuple[int, ...]]:
    block = call.integers(1, "block")
    if len(block) != 2:
        raise ShapeError(f"expected a block of two dimensions, found {list(block)}")
    return (block[0], block[1]), tuple(call.rows(2, "borders", 2).reshape(-1).tolist())


def space_to_batch(call: TfliteCall) -> Tensor:
    return _emit_on_input(call, ops.SpaceToBatch(*_block_and_borders(call)))


def batch_to_space(call: TfliteCall) -> Tensor:
    return _emit_on_input(call, ops.BatchToSpace(*_block_and_borders(call)))


def shape_of(call: TfliteCall) -> Tensor:
    shape = call.tensor(0, "input").shape
    return call.constant(np.array(shape, call.out_dtype.numpy))


def rank_of(call: TfliteCall) -> Tensor:
    return call.constant(np.array(len(call.tensor(0, "input").shape), np.int32))


def fill(call: TfliteCall) -> Tensor:
    shape, value = call.integers(0, "shape"), call.tensor(1, "value")
    return call.result(ops.BroadcastTo(shape), value)


def zeros_like(call: TfliteCall) -> Tensor:
    x = call.tensor(0, "input")
    return call.result(ops.BroadcastTo(x.shape), call.scalar(0, x))


def arange(call: TfliteCall) -> Tensor:
    start, limit, delta = (call.value(i, "bound").reshape(-1)[0] for i in range(3))
    if delta == 0 or abs(float(limit) - float(start)) / abs(float(delta)) > _RANGE_LIMIT:
        raise ShapeError(f"expected a range that ends, found {start} to {limit} by {delta}")
    return call.constant(np.arange(start, limit, delta, dtype=call.out_dtype.numpy))


def broadcast_to(call: TfliteCall) -> Tensor:
    return _emit_on_input(call, ops.BroadcastTo(call.integers(1, "shape")))


def broadcast_args(call: TfliteCall) -> Tensor:
    shapes = [call.integers(i, "shape") for i in range(2)]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"expected shapes that broadcast, found {shapes}") from None
    return call.constant(np.array(shape, call.out_dtype.numpy))


def tile(call: TfliteCall) -> Tensor:
    """Repeats each axis by broadcasting a new axis before it."""
    x, counts = call.tensor(0, "input"), call.integers(1, "multiples")
    if len(counts) != len(x.shape) or any(c < 1 for c in counts):
        raise ShapeError(f"expected {len(x.shape)} counts of at least 1, found {list(counts)}")
    for axis, count in enumerate(counts):
        if count > 1:
            lead, rest = x.shape[:axis], x.shape[axis:]
            wide = call.reshape(x, (*lead, 1, *rest))
            wide = call.emit(ops.BroadcastTo((*lead, count, *rest)), wide, quant=x.quant)
            x = call.reshape(wide, (*lead, count * rest[0], *rest[1:]))
    return x


def space_to_depth(call: TfliteCall) -> Tensor:
    x, block = call.tensor(0, "image"), call.option("BlockSize")
    if len(x.shape) != 4 or block < 1 or x.shape[1] % block or x.shape[2] % block:
        raise ShapeError(f"expected an image divisible by blocks of {block}, found {list(x.shape)}")
    n, h, w, c = x.shape
    blocks = call.reshape(x, (n, h // block, block, w // block, block, c))
    moved = call.transpose(blocks, (0, 1, 3, 2, 4, 5))
    return call.reshape(moved, (n, h // block, w // block, block * block * c))


def reverse(call: TfliteCall) -> Tensor:
    x = call.tensor(0, "input")
    axes = {call.axis(a, len(x.shape)) for a in call.integers(1, "axes")}
    begin = tuple(d - 1 if i in axes else 0 for i, d in enumerate(x.shape))
    steps = tuple(-1 if i in axes else 1 for i in range(len(x.shape)))
    return _emit_on_input(call, ops.StridedSlice(begin, steps, x.shape, x.shape))


def mirror_pad(call: TfliteCall) -> Tensor:
    """Gathers mirrored positions along each axis; mode 0 omits the edge, mode 1 repeats it."""
    x = call.tensor(0, "input")
    skip = 0 if call.option("Mode") else 1
    for axis, (before, after) in enumerate(call.rows(1, "paddings", len(x.shape)).tolist()):
        size = x.shape[axis]
        if not (0 <= before <= size - skip and 0 <= after <= size - skip):
            raise ShapeError(f"expected paddings within {size} elements, found {before}, {after}")
        if before or after:
            call.builder.need_room((before + size + after,), np.int64)
            front = np.arange(before + skip - 1, skip - 1, -1)
            back = size - 1 - skip - np.arange(after)
            picks = np.concatenate([front, np.arange(size), back])
            x = call.emit(ops.Gather(axis), x, call.constant(picks), quant=x.quant)
    return x


def resize_bilinear(call: TfliteCall) -> Tensor:
    align, half = bool(call.option("AlignCorners")), bool(call.option("HalfPixelCenters"))
    return _emit_on_input(call, ops.ResizeBilinear(_read_size(call), align, half))


def resize_nearest(call: TfliteCall) -> Tensor:
    """Gathers rows, then columns, at positions computed in f32 as in TFLite."""
    x, size = call.tensor(0, "image"), _read_size(call)
    if len(x.shape) != 4:
        raise ShapeError(f"expected an image of rank 4, found shape {list(x.shape)}")
    align, half = bool(call.option("AlignCorners")), bool(call.option("HalfPixelCenters"))
    for axis, count in zip((1, 2), size, strict=True):
        source, at = x.shape[axis], np.arange(count).astype(np.float32)
        exact = align and count > 1
        scale = np.float32(source - 1 if exact else source) / np.float32(
            count - 1 if exact else count
        )
        position = (at + np.float32(0.5 if half else 0.0)) * scale
        whole = np.floor(position + np.float32(0.5)) if align else np.floor(position)
        picks = np.clip(whole, 0, source - 1).astype(np.int32)
        if not np.array_equal(picks, np.arange(source)):
            x = call.emit(ops.Gather(axis), x, call.constant(picks), quant=x.quant)
    return x


def _read_size(call: TfliteCall) -> Pair:
    size = call.integers(1, "size")
    if len(size) != 2 or not all(1 <= s <= _SIZE_LIMIT for s in size):
        raise ShapeError(f"expected a height and width from 1 to {_SIZE_LIMIT}, found {list(size)}")
    return size[0], size[1]

"""Import of ONNX operators that select parts of a tensor fixed at import time."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import crop, surround
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_SIZE_LIMIT = 1 << 26


def center_crop_pad(call: OnnxCall) -> Tensor:
    """Crops or zero-pads to a size around the center; an odd difference goes to the end."""
    x, asked = call.x(0), call.integers(1, "shape")
    rank = len(x.shape)
    axes = tuple(call.axis(a, rank) for a in call.list("axes", tuple(range(rank))))
    if len(asked) != len(axes) or not all(0 < n <= _SIZE_LIMIT for n in asked):
        raise ShapeError(f"expected {len(axes)} positive sizes, found {list(asked)}")
    cut, pads = ([0] * rank, [0] * rank), ([0] * rank, [0] * rank)
    for axis, size in zip(axes, asked, strict=True):
        change = abs(x.shape[axis] - size)
        sides = cut if x.shape[axis] > size else pads
        sides[0][axis], sides[1][axis] = change // 2, change - change // 2
    return surround(call, crop(call, x, *cut), *pads, 0.0)


def columns_to_image(call: OnnxCall) -> Tensor:
    """Col2Im: adds up blocks [n, c · block size, blocks] at their positions in the image."""
    x = call.x(0)
    image, block = call.integers(1, "image_shape"), call.integers(2, "block_shape")
    rank = len(image)
    steps = call.list("strides", (1,) * rank)
    dilation = call.list("dilations", (1,) * rank)
    pads = call.list("pads", (0,) * (2 * rank))
    if not (0 < rank == len(block) == len(steps) == len(dilation) and len(pads) == 2 * rank):
        raise ShapeError(
            f"expected a block, strides, dilations and pads for {list(image)}, found "
            f"{list(block[:9])}, {list(steps[:9])}, {list(dilation[:9])} and {list(pads[:9])}"
        )
    if not all(0 < n <= _SIZE_LIMIT for n in (*image, *block, *steps, *dilation)):
        raise ShapeError(f"expected positive sizes and steps, found {list(image)}, {list(block)}")
    if math.prod(image) > _SIZE_LIMIT:
        raise ShapeError(f"expected an image of at most {_SIZE_LIMIT} pixels, found {list(image)}")
    if not all(0 <= p <= _SIZE_LIMIT for p in pads):
        raise ShapeError(f"expected pads of at least 0, found {list(pads)}")
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, block, strict=True)]
    counts = [
        (size + pads[i] + pads[rank + i] - spans[i]) // steps[i] + 1 for i, size in enumerate(image)
    ]
    values, blocks, pixels = math.prod(block), math.prod(counts), math.prod(image)
    if len(x.shape) != 3 or x.shape[1] % values or x.shape[2] != blocks or min(counts) < 1:
        raise ShapeError(
            f"expected {blocks} blocks of a multiple of {values} values, found {list(x.shape)}"
        )
    at = np.zeros((1,) * (2 * rank), np.int64)
    call.builder.need_room((values, blocks), at.dtype)
    inside = np.ones(at.shape, np.bool_)
    for i, size in enumerate(image):
        inner = np.arange(block[i]).reshape(_axis_shape(2 * rank, i)) * dilation[i] - pads[i]
        place = inner + np.arange(counts[i]).reshape(_axis_shape(2 * rank, rank + i)) * steps[i]
        at, inside = at * size + place, inside & (place >= 0) & (place < size)
    rows = call.constant(np.where(inside, at, pixels).reshape(-1))
    n, share = x.shape[0], x.shape[1] // values
    parts = call.reshape(x, (n, share, values, blocks))
    updates = call.reshape(call.transpose(parts, (2, 3, 0, 1)), (values * blocks, n * share))
    zeros = call.filled((pixels, n * share), 0, x.dtype.numpy)
    y = call.emit(ops.Scatter("add"), zeros, rows, updates)
    transposed = call.transpose(call.reshape(y, (pixels, n, share)), (1, 2, 0))
    return call.reshape(transposed, (n, share, *image))


def _axis_shape(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(-1 if i == axis else 1 for i in range(rank))


def reverse_sequence(call: OnnxCall) -> Tensor:
    """Reverses the first elements of each sequence."""
    x, lengths = call.x(0), call.x(1)
    time, batch = call.integer("time_axis", 0), call.integer("batch_axis", 1)
    if sorted((time, batch)) != [0, 1] or len(x.shape) < 2:
        raise ShapeError(f"expected time and batch as axes 0 and 1, found {time} and {batch}")
    steps, count = x.shape[time], x.shape[batch]
    if lengths.shape != (count,):
        raise ShapeError(f"expected {count} lengths, found {list(lengths.shape)}")
    if lengths.data is not None and not all(0 <= n <= steps for n in lengths.data):
        raise ShapeError(f"expected lengths up to {steps}, found {lengths.data.tolist()}")
    call.builder.need_room((steps, count), np.int64)
    at = call.constant(np.arange(steps, dtype=np.int64).reshape(-1, 1))
    ends = call.convert(lengths, DType.I64)
    last = call.emit(ops.Sub(), ends, call.constant(np.array(1, np.int64)))
    inside = call.emit(ops.Less(), at, ends)
    source = call.emit(ops.Where(), inside, call.emit(ops.Sub(), last, at), at)
    numbers = np.arange(count, dtype=np.int64)
    if batch == 0:
        first = call.constant(numbers * steps)
        flat = call.transpose(call.emit(ops.Add(), source, first), (1, 0))
    else:
        rows = call.emit(ops.Mul(), source, call.constant(np.array(count, np.int64)))
        flat = call.emit(ops.Add(), rows, call.constant(numbers))
    joined = call.reshape(x, (steps * count, *x.shape[2:]))
    return call.emit(ops.Gather(0), joined, flat)

"""Operators that move data, lowered to fills and strided copies."""

from __future__ import annotations

import itertools

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import strides_of
from edgekit.host.compiler.ir.ops import (
    BatchToSpace,
    BitCast,
    Concat,
    DepthToSpace,
    Pad,
    ReadState,
    Reshape,
    SpaceToBatch,
    Split,
    StridedSlice,
    Transpose,
    WriteState,
)
from edgekit.host.compiler.ir.quantization import concat_rescale, zero_point_of
from edgekit.host.compiler.ir.types import Node, Shape, Tensor
from edgekit.host.compiler.ir.views import can_be_made_inside, joins_runs, view_sources
from edgekit.host.compiler.lowering.common.copies import fill, strided_copy
from edgekit.host.compiler.lowering.common.tables import look_up
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.moves.transpose import matrix_transpose
from edgekit.host.compiler.lowering.plan import Alias, KernelCall, Value, base_of


def _pad_byte(t: Tensor) -> int:
    return zero_point_of(t) if t.quant is not None else 0


@lowers(ops.Reshape, ops.BitCast)
def lower_reshape(ctx: Context, node: Node) -> list[KernelCall]:
    """Emits no code: the output aliases the input."""
    assert isinstance(node.op, Reshape | BitCast)
    assert node.inputs[0] is not None
    ctx.aliases[node.outputs[0]] = Alias(node.inputs[0])
    return []


@lowers(ops.Transpose)
def lower_transpose(ctx: Context, node: Node) -> list[KernelCall]:
    assert isinstance(node.op, Transpose)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    matrix = matrix_transpose(ctx, node) if y.name not in ctx.parts else None
    if matrix is not None:
        return matrix
    size = x.dtype.bytes
    source, target = strides_of(x.shape, size), ctx.strides(y.name)
    permuted = [source[p] for p in node.op.permutation]
    return [strided_copy(ctx, y.shape, permuted, target, size, Value(x.name), Value(y.name))]


@lowers(ops.Pad)
def lower_pad(ctx: Context, node: Node) -> list[KernelCall]:
    """A copy of x into y, and a fill for each side of each padded dimension."""
    assert isinstance(node.op, Pad)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    size = x.dtype.bytes
    target = strides_of(y.shape, size)
    calls = []
    for axis, (before, after) in enumerate(zip(node.op.before, node.op.after, strict=True)):
        for count, start in ((before, 0), (after, y.shape[axis] - after)):
            if count:
                dims = [*y.shape[:axis], count, *y.shape[axis + 1 :]]
                at = Value(y.name, start * target[axis])
                calls.append(fill(ctx, dims, target, size, at, _pad_byte(x)))
    offset = sum(b * s for b, s in zip(node.op.before, target, strict=True))
    source = strides_of(x.shape, size)
    calls.append(
        strided_copy(ctx, x.shape, source, target, size, Value(x.name), Value(y.name, offset))
    )
    return calls


@lowers(ops.Concat)
def lower_concat(ctx: Context, node: Node) -> list[KernelCall]:
    assert isinstance(node.op, Concat)
    y = ctx.tensor(node.outputs[0])
    size = y.dtype.bytes
    target = strides_of(y.shape, size)
    calls, offset = [], 0
    is_run = joins_runs(node, y)
    for name in node.inputs:
        x = ctx.tensor(name)
        if name not in ctx.parts and not (is_run and _made_inside(ctx, x, y, offset)):
            source, rescale = _in_units_of(ctx, node, x, y)
            to, strides = Value(y.name, offset), strides_of(x.shape, size)
            calls += rescale
            calls.append(strided_copy(ctx, x.shape, strides, target, size, source, to))
        offset += x.shape[node.op.axis] * target[node.op.axis]
    return calls


def _made_inside(ctx: Context, x: Tensor, y: Tensor, offset: int) -> bool:
    """Aliases x to a part of y's memory; returns False if that is not possible."""
    base = base_of(ctx.aliases, x.name).base
    if not can_be_made_inside(ctx.graph, base, x, y):
        return False
    ctx.aliases[base] = Alias(y.name, offset)
    return True


def _in_units_of(ctx: Context, node: Node, x: Tensor, y: Tensor) -> tuple[Value, list[KernelCall]]:
    """x rescaled to the scale of y, with the table lookup that does so if the scales differ."""
    if not x.dtype.is_quantized:
        return Value(x.name), []
    quantized = np.arange(256, dtype=np.uint8).view(x.dtype.numpy)
    table = concat_rescale(quantized, x, y)
    if np.array_equal(table, quantized):
        return Value(x.name), []
    target = ctx.scratch(node, x.bytes)
    return target, [look_up(ctx, table, x.elements, Value(x.name), target)]


@lowers(ops.Split)
def lower_split(ctx: Context, node: Node) -> list[KernelCall]:
    assert isinstance(node.op, Split)
    x = ctx.tensor(node.inputs[0])
    size = x.dtype.bytes
    source = ctx.strides(x.name)
    calls, offset = [], 0
    views = view_sources(ctx.graph.tensors, node)
    for name in node.outputs:
        y = ctx.tensor(name)
        if name in views:
            ctx.aliases[name] = Alias(x.name, offset)
            offset += y.bytes
            continue
        if not _is_in_place(ctx, x, offset, y):
            calls.append(
                strided_copy(
                    ctx,
                    y.shape,
                    source,
                    ctx.strides(name),
                    size,
                    Value(x.name, offset),
                    Value(y.name),
                )
            )
        offset += y.shape[node.op.axis] * source[node.op.axis]
    return calls


def _is_in_place(ctx: Context, x: Tensor, offset: int, y: Tensor) -> bool:
    """Whether y is read where x holds it, `offset` bytes from its start."""
    held, kept = (base_of(ctx.aliases, t.name) for t in (x, y))
    return (kept.base, kept.offset) == (held.base, held.offset + offset)


@lowers(ops.StridedSlice)
def lower_strided_slice(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, StridedSlice)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    size = x.dtype.bytes
    source = ctx.strides(x.name)
    offset = sum(b * s for b, s in zip(op.begin, source, strict=True))
    steps = [st * s for st, s in zip(op.stride, source, strict=True)]
    if view_sources(ctx.graph.tensors, node):
        ctx.aliases[y.name] = Alias(x.name, offset)
        return []
    if _is_in_place(ctx, x, offset, y):
        return []
    return [
        strided_copy(
            ctx,
            op.extent,
            steps,
            ctx.strides(y.name) if y.name in ctx.parts else strides_of(op.extent, size),
            size,
            Value(x.name, offset),
            Value(y.name),
        )
    ]


def _permute_axes(
    ctx: Context, node: Node, dims: Shape, order: tuple[int, ...], calls: list[KernelCall]
) -> list[KernelCall]:
    """y = x viewed as `dims`, with its axes permuted to `order`."""
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    size = x.dtype.bytes
    source = strides_of(dims, size)
    shape = [dims[i] for i in order]
    copy = strided_copy(
        ctx,
        shape,
        [source[i] for i in order],
        strides_of(shape, size),
        size,
        Value(x.name),
        Value(y.name),
    )
    return [*calls, copy]


@lowers(ops.DepthToSpace)
def lower_depth_to_space(ctx: Context, node: Node) -> list[KernelCall]:
    assert isinstance(node.op, DepthToSpace)
    n, h, w, c = ctx.tensor(node.inputs[0]).shape
    b = node.op.block
    return _permute_axes(ctx, node, (n, h, w, b, b, c // (b * b)), (0, 1, 3, 2, 4, 5), [])


@lowers(ops.SpaceToBatch)
def lower_space_to_batch(ctx: Context, node: Node) -> list[KernelCall]:
    """Output image (by, bx, n) holds the pixels of input image n at phase (by, bx)."""
    assert isinstance(node.op, SpaceToBatch)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    return _copy_phases(ctx, x, y, node.op.block, node.op.padding[0], node.op.padding[2], True)


@lowers(ops.BatchToSpace)
def lower_batch_to_space(ctx: Context, node: Node) -> list[KernelCall]:
    assert isinstance(node.op, BatchToSpace)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    return _copy_phases(ctx, y, x, node.op.block, node.op.crop[0], node.op.crop[2], False)


def _copy_phases(
    ctx: Context,
    space: Tensor,
    batch: Tensor,
    block: tuple[int, int],
    top: int,
    left: int,
    to_batch: bool,
) -> list[KernelCall]:
    """Copies between an image and its phases; rows and columns outside the image are padding."""
    size = space.dtype.bytes
    n, h, w, c = space.shape
    inner, outer = strides_of(space.shape, size), strides_of(batch.shape, size)
    calls = []
    if to_batch:
        calls.append(fill(ctx, (batch.bytes,), (1,), 1, Value(batch.name), _pad_byte(batch)))
    for by, bx in itertools.product(range(block[0]), range(block[1])):
        # Phase pixel (i, j) is image pixel (i * block + by - top, j * block + bx - left).
        rows = [i for i in range(batch.shape[1]) if 0 <= i * block[0] + by - top < h]
        columns = [j for j in range(batch.shape[2]) if 0 <= j * block[1] + bx - left < w]
        if not rows or not columns:
            continue
        phase = (by * block[1] + bx) * n
        at_batch = phase * outer[0] + rows[0] * outer[1] + columns[0] * outer[2]
        at_space = (rows[0] * block[0] + by - top) * inner[1]
        at_space += (columns[0] * block[1] + bx - left) * inner[2]
        dims = (n, len(rows), len(columns), c)
        step = (inner[0], inner[1] * block[0], inner[2] * block[1], inner[3])
        ends = (Value(space.name, at_space), Value(batch.name, at_batch))
        x, y = ends if to_batch else (ends[1], ends[0])
        xs, ys = (step, outer) if to_batch else (outer, step)
        calls.append(strided_copy(ctx, dims, xs, ys, size, x, y))
    return calls


@lowers(ops.ReadState)
def lower_read_state(ctx: Context, node: Node) -> list[KernelCall]:
    assert isinstance(node.op, ReadState)
    if base_of(ctx.aliases, node.outputs[0]).base == state_buffer(node.op.state):
        return []
    y = ctx.tensor(node.outputs[0])
    return [copy_bytes(ctx, y.bytes, Value(state_buffer(node.op.state)), Value(y.name))]


@lowers(ops.WriteState)
def lower_write_state(ctx: Context, node: Node) -> list[KernelCall]:
    assert isinstance(node.op, WriteState)
    x = ctx.tensor(node.inputs[0])
    if base_of(ctx.aliases, x.name).base == state_buffer(node.op.state):
        return []
    return [copy_bytes(ctx, x.bytes, Value(x.name), Value(state_buffer(node.op.state)))]


def state_buffer(state: str) -> str:
    """The buffer name of a state in kernel calls."""
    return f"state:{state}"


def copy_bytes(ctx: Context, size: int, x: Value, y: Value) -> KernelCall:
    """Copies all `size` bytes of x to y."""
    return strided_copy(ctx, (size,), (1,), (1,), 1, x, y)

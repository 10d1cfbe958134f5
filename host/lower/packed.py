"""Products of two computed matrices of floats that are packed as they are multiplied, and the pass
that has them read and write through transposes (device/kernels/product/packed.c)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from edgekit.device.kernel_facts import MATMUL_DIMS, PACKED_ROWS
from edgekit.host.graph import ops
from edgekit.host.graph.checks import FLOATS
from edgekit.host.graph.types import Activation, Graph, Node, Shape, Tensor
from edgekit.host.lower.context import Context
from edgekit.host.lower.layout import strides_of
from edgekit.host.lower.plan import Call, Field, Value
from edgekit.host.passes.rewrite import Users, rewrite
from edgekit.kb.board import BoardProfile

_ARCHITECTURES = ("aarch64", "riscv64")
_TILES = 2  # of rows: as many do not win what packing costs
Axes = tuple[int, ...]


def has_packed_products(board: BoardProfile) -> bool:
    """Whether the kernel is there for the board's core, and faster than plain C's."""
    return board.arch in _ARCHITECTURES and board.isa.vl > 1


def lower_packed(ctx: Context, node: Node, a: Tensor, b: Tensor, y: Tensor) -> list[Call]:
    """`a` and `b`: the operands; either may be constant."""
    op = node.op
    viewed = op if isinstance(op, ops.ViewedMatMul) else ops.ViewedMatMul()
    a_shape, a_steps = _view(a.shape, viewed.a_axes)
    b_shape, b_steps = _view(b.shape, viewed.b_axes)
    y_shape, y_steps = _view(y.shape, _inverse(viewed.y_axes))
    (m, k), n = a_shape[-2:], b_shape[-1]
    half = ctx.of_floats(a.dtype)
    tile = half.isa.f32_tiles[0]
    width = tile.nv * half.isa.vl
    stack = _stack((a_shape, b_shape, y_shape), (a_steps, b_steps, y_steps))
    dims = tuple(size for size, _ in stack)
    bands, panels = math.ceil(m / PACKED_ROWS), math.ceil(n / width)
    few = m <= _TILES * tile.mr or b_steps[-2] == width
    fields: dict[str, Field] = {
        "m": m,
        "k": k,
        "n": n,
        "bands": bands,
        "panels": panels,
        "a_row": a_steps[-2],
        "b_row": b_steps[-2],
        "b_column": b_steps[-1],
        "y_row": y_steps[-2],
        "dim": dims,
        "a_stride": tuple(steps[0] for _, steps in stack),
        "b_stride": tuple(steps[1] for _, steps in stack),
        "y_stride": tuple(steps[2] for _, steps in stack),
        "in_place": int(few and b_steps[-1] == 1),
        "scale": viewed.scale,
        "a": _operand(ctx, a),
        "b": _operand(ctx, b),
        "y": Value(y.name),
    }
    name = f"{a.dtype.value}_packed_{tile.mr}x{width}"
    folder = "product/packed"
    kernel = half.kernel(
        name, f"{folder}.c", f"{folder}.h", "ek_packed_args", MR=tile.mr, NV=tile.nv
    )
    return [Call(kernel, fields, math.prod(dims) * bands * panels)]


def _operand(ctx: Context, t: Tensor) -> Field:
    return Value(t.name) if t.data is None else ctx.weights.add(t.data)


def _view(shape: Shape, axes: Axes) -> tuple[Shape, Axes]:
    """A stored tensor as it is seen, with the steps between its elements."""
    steps = strides_of(shape, 1)
    order = axes or tuple(range(len(shape)))
    return tuple(shape[a] for a in order), tuple(steps[a] for a in order)


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(i) for i in range(len(axes)))


def _stack(shapes: Sequence[Shape], steps: Sequence[Axes]) -> list[tuple[int, Axes]]:
    """The sizes of the stack of matrices of the last of `shapes`, outermost first, and per operand
    the step; neighbors are one where that is the same."""
    merged: list[tuple[int, Axes]] = []
    rank = len(shapes[-1])
    for axis in range(rank - 2):
        size, here = shapes[-1][axis], []
        for shape, step in zip(shapes, steps, strict=True):
            own = axis - rank + len(shape)
            here.append(0 if own < 0 or shape[own] == 1 else step[own])
        if size == 1:
            continue
        if merged and merged[-1][1] == tuple(size * s for s in here):
            merged[-1] = (merged[-1][0] * size, tuple(here))
        else:
            merged.append((size, tuple(here)))
    return [(1, (0,) * len(shapes))] * (MATMUL_DIMS - len(merged)) + merged


def with_views(graph: Graph, board: BoardProfile) -> Graph:
    """`graph` with transposes of nothing but operands or results of products, and factors of the
    latter, in these; as it is for boards without the kernel."""
    if not has_packed_products(board):
        return graph
    before = None
    while graph is not before:
        before, graph = graph, rewrite(graph, _with_view)
    return graph


def _with_view(users: Users, node: Node) -> dict[str, Node | None] | None:
    if not isinstance(node.op, ops.MatMul) or not _is_known(users.graph, node):
        return None
    op = node.op
    if not isinstance(op, ops.ViewedMatMul):
        op = ops.ViewedMatMul()
    return (
        _with_operand(users, node, op, 0)
        or _with_operand(users, node, op, 1)
        or _with_result(users, node, op)
    )


def _is_known(graph: Graph, node: Node) -> bool:
    made = graph.tensors[node.outputs[0]]
    stacked = sum(size > 1 for size in made.shape[:-2])
    return made.dtype in FLOATS and stacked <= MATMUL_DIMS


def _with_operand(
    users: Users, node: Node, op: ops.ViewedMatMul, index: int
) -> dict[str, Node | None] | None:
    """The transpose before an operand, if its rows can be read so: those of a, and rows or columns
    of b, have to be contiguous."""
    before = users.single(node.inputs[index])
    if before is None or not isinstance(before.op, ops.Transpose):
        return None
    order = before.op.permutation
    axes = tuple(order[a] for a in (op.b_axes if index else op.a_axes) or range(len(order)))
    last = len(axes) - 1
    if last not in (axes[-2:] if index else axes[-1:]):
        return None
    seen = dataclasses.replace(op, b_axes=axes) if index else dataclasses.replace(op, a_axes=axes)
    inputs = list(node.inputs)
    inputs[index] = before.inputs[0]
    return {before.name: None, node.name: Node(node.name, seen, tuple(inputs), node.outputs)}


def _with_result(users: Users, node: Node, op: ops.ViewedMatMul) -> dict[str, Node | None] | None:
    after = users.only_consumer(node.outputs[0])
    if after is None:
        return None
    if isinstance(after.op, ops.Transpose):
        order = after.op.permutation
        axes = tuple((op.y_axes or range(len(order)))[a] for a in order)
        if axes[-1] != len(axes) - 1:
            return None
        done = dataclasses.replace(op, y_axes=axes)
    else:
        factor = _factor(users.graph, after)
        if factor is None or op.scale != 1:
            return None
        done = dataclasses.replace(op, scale=factor)
    return {node.name: Node(node.name, done, node.inputs, after.outputs), after.name: None}


def _factor(graph: Graph, node: Node) -> float | None:
    """The one constant that `node` multiplies all of its input by."""
    if not isinstance(node.op, ops.Mul) or node.op.activation is not Activation.NONE:
        return None
    x, y = (graph.tensors[name or ""] for name in (node.inputs[0], node.outputs[0]))
    w = graph.tensors[node.inputs[1] or ""]
    if w.data is None or w.elements != 1 or x.shape != y.shape or w.dtype is not x.dtype:
        return None
    return float(w.data.reshape(-1)[0])

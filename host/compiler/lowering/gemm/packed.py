"""Products of two computed float matrices, packed at run time, and their fusion with transposes.

See device/kernels/product/packed.c.
"""

from __future__ import annotations

import dataclasses
import math

from edgekit.device.runtime.kernel_facts import MATMUL_DIMS, PACKED_ROWS
from edgekit.host.compiler.costs.methods.operators import (
    OperatorMethod,
    packs_products,
    products_of,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import FLOATS
from edgekit.host.compiler.ir.types import Activation, Graph, Node
from edgekit.host.compiler.lowering.common.arguments import values_of
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.computed import GemmOperands, form_of_product, operands_of
from edgekit.host.compiler.lowering.methods import tile_of
from edgekit.host.compiler.lowering.plan import Field, KernelCall
from edgekit.host.compiler.transforms.passes.rewrite import Users, rewrite
from edgekit.kb.targets.board import BoardProfile

_TILES = 2  # row tiles: with so few, packing does not pay


def lower_packed(
    ctx: Context, node: Node, operands: GemmOperands, method: OperatorMethod
) -> list[KernelCall]:
    """Lowers a packed product; either operand may be constant."""
    a = ctx.tensor(node.inputs[0])
    half = ctx.of_floats(a.dtype)
    tile = tile_of(method, half.isa.vl)
    width = tile.nv * half.isa.vl
    m, n = operands.shape.m, operands.shape.n
    bands, panels = math.ceil(m / PACKED_ROWS), math.ceil(n / width)
    few = m <= _TILES * tile.mr or operands.b[0] == width
    fields: dict[str, Field] = {
        **operands.fields,
        "m": m,
        "bands": bands,
        "panels": panels,
        "b_row": operands.b[0],
        "b_column": operands.b[1],
        "in_place": int(few and operands.b[1] == 1),
        **values_of(ctx, node),
    }
    name = f"{a.dtype.value}_packed_{tile.mr}x{width}"
    folder = "product/packed"
    kernel = half.kernel(
        name, f"{folder}.c", f"{folder}.h", "ek_packed_args", MR=tile.mr, NV=tile.nv
    )
    return [KernelCall(kernel, fields, operands.matrices * bands * panels)]


def with_views(graph: Graph, board: BoardProfile) -> Graph:
    """Fuses transposes of operands and results, and constant factors of results, into products.

    Only transposes with no other reader are fused, and only if the board's kernels support the
    access.
    """
    packs = packs_products(board.isa, board)

    def viewed(users: Users, node: Node) -> dict[str, Node | None] | None:
        if not isinstance(node.op, ops.MatMul) or not _is_known(users.graph, node):
            return None
        made = _with_view(users, node)
        after = None if made is None else made[node.name]
        return made if after is not None and (packs or _is_streamed(users, after, board)) else None

    before = None
    while graph is not before:
        before, graph = graph, rewrite(graph, viewed)
    return graph


def _is_streamed(users: Users, node: Node, board: BoardProfile) -> bool:
    """True if product/streamed.c is the best kernel for the fused product."""
    graph = users.graph
    a, b = (graph.tensors[name or ""] for name in node.inputs[:2])
    y = graph.tensors[node.outputs[0]]
    form = form_of_product(node, operands_of(node, a, b, y), a.dtype)
    cheapest = min(products_of(form, board.isa, board), key=lambda c: c.cost)
    return cheapest.method.family == "streamed" and board.arch != "x86_64"


def _with_view(users: Users, node: Node) -> dict[str, Node | None] | None:
    op = node.op if isinstance(node.op, ops.ViewedMatMul) else ops.ViewedMatMul()
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
    """Fuses the transpose before an operand if the strides allow it.

    Rows of a, and rows or columns of b, must be contiguous.
    """
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
        factor = _constant_factor(users.graph, after)
        if factor is None or op.scale != 1:
            return None
        done = dataclasses.replace(op, scale=factor)
    return {node.name: Node(node.name, done, node.inputs, after.outputs), after.name: None}


def _constant_factor(graph: Graph, node: Node) -> float | None:
    """The constant scalar by which `node` multiplies its input; None for other nodes."""
    if not isinstance(node.op, ops.Mul) or node.op.activation is not Activation.NONE:
        return None
    x, y = (graph.tensors[name or ""] for name in (node.inputs[0], node.outputs[0]))
    w = graph.tensors[node.inputs[1] or ""]
    if w.data is None or w.elements != 1 or x.shape != y.shape or w.dtype is not x.dtype:
        return None
    return float(w.data.reshape(-1)[0])

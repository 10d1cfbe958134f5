"""Products of a row by 2-bit weights that look sums of two products up in tables.

A look-up takes the place of two multiplications, but only on cores without 8-bit dot products does
that save time, and the sums are rounded to 8 bits; so the graph is marked before golden outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgekit.host.compiler.ir.ops import OutlierFullyConnected
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.packing import fits_int2
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.isa import ByteProduct

_REGISTERS = 32  # of 64-bit ARM, whose tables have 16 bytes
_WHOLE = 64  # inputs whose only scale is not repeated (`operands_of`)
_VALUES = 8  # bytes of tables for each value of x
# Making the tables of a value takes 10 cycles of an A72, looking a column's weight up instead of
# unpacking it saves 0.06: at 576 x 192 both forms take as long, on an A53 the tables 18% less.
_LEAST_COLUMNS = 192
_GRAIN = 1024  # values worth waking a thread for
_DEPTHS = range(32, 257, 32)  # of groups whose sums fit 16 bits


LOOKED_UP = (
    "sums of two products looked up in tables of 8 bits, as this core has no dot products; their "
    "error is at most the largest one of 8-bit activations"
)


def why_unpacked(board: BoardProfile, bits: int) -> str:
    """Why weights are not looked up, and what would be faster."""
    if not can_look_up(board):
        why = "not looked up, which is faster only on NEON without dot products"
    elif bits > 2:
        why = f"not looked up: sums of {bits}-bit weights are more than a table has"
    else:
        why = f"not looked up: that takes a row, and {_LEAST_COLUMNS} columns or more"
    slow = bits == 3 and (board.in_order or board.isa.i8 is ByteProduct.MULL16)
    return f"{why}; 4 bits take less time here" if slow else why


@dataclass(frozen=True)
class RowTables:
    """The call that makes the tables of a row, and the fields of the product's arguments."""

    made: KernelCall
    row: Mapping[str, Field]


def can_look_up(board: BoardProfile) -> bool:
    """Whether the board has the kernels, and they may be faster: its core has no dot products."""
    return board.isa.i8 is ByteProduct.MULL16 and board.isa.registers >= _REGISTERS


def with_tables(graph: Graph, board: BoardProfile) -> Graph:
    """Marks the products for which looking up is faster; the same graph if there are none."""
    if not can_look_up(board):
        return graph
    nodes = tuple(_marked(graph, node) for node in graph.nodes)
    return graph if nodes == graph.nodes else replace(graph, nodes=nodes)


def _marked(graph: Graph, node: Node) -> Node:
    op = node.op
    if not isinstance(op, OutlierFullyConnected):
        return node
    x, weights, scale = (graph.tensors[name or ""] for name in node.inputs[:3])
    n, k = weights.shape
    if x.elements != k or k // scale.shape[0] not in _DEPTHS or weights.data is None:
        return node
    if scale.shape[0] == 1 and k % _WHOLE:
        return node
    faster = n >= _LEAST_COLUMNS
    return (
        replace(node, op=replace(op, tables=True)) if faster and fits_int2(weights.data) else node
    )


def row_tables(ctx: Context, node: Node, groups: int, channel: Value, count: Value) -> RowTables:
    """Tables for a product whose outliers are in a list."""
    weights = ctx.constant(node, 1, "weights")
    k, ternary = weights.shape[1], bool(weights.min(initial=0) >= -1)
    to = ctx.scratch(node, _VALUES * k)
    scale, sums = ctx.scratch(node, 4 * groups), ctx.scratch(node, 4 * groups)
    kernel = ctx.kernel(
        f"row_tables{'_ternary' if ternary else ''}",
        "outlier/row_tables.c",
        "outlier/row_tables.h",
        "ek_row_tables_args",
        TERNARY=int(ternary),
    )
    fields: dict[str, Field] = {
        "group": k // groups,
        "x": Value(node.inputs[0] or ""),
        "channel": channel,
        "count": count,
        "to": to,
        "scale": scale,
        "sum": sums,
    }
    row: dict[str, Field] = {"x1": to, "sums": sums, "x_scale": scale}
    return RowTables(KernelCall(kernel, fields, groups, max(1, _GRAIN // (k // groups))), row)

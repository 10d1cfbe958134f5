"""Quantized operators as tables of all results: one 8- or 16-bit input, or two 8-bit inputs."""

from __future__ import annotations

import math

import numpy as np

from edgekit.device.runtime.kernel_facts import UNARY_CHUNK
from edgekit.host.compiler.ir.ops import Binary
from edgekit.host.compiler.ir.quantization import lookup_table
from edgekit.host.compiler.ir.sums import is_per_channel
from edgekit.host.compiler.ir.traits import OnQuantized
from edgekit.host.compiler.ir.types import Array, Graph, Node, Operator, Tensor
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_C_TYPES = {1: "uint8_t", 2: "uint16_t"}  # by size in bytes


def look_up(ctx: Context, table: Array, n: int, x: Value, y: Value) -> KernelCall:
    """y = table[x] for `n` values; the index is the value's bits as an unsigned number."""
    bits, made = (8 if table.size == 256 else 16), 8 * table.itemsize
    macros: dict[str, str | int] = {"OP_BYTE_TABLE": 1}
    if (bits, made) != (8, 8):
        macros = {"OP_TABLE": 1, "TX": _C_TYPES[bits // 8], "TY": _C_TYPES[table.itemsize]}
    kernel = ctx.kernel(
        f"table_{bits}bit" + ("" if bits == made else f"_to_{made}bit"),
        "elementwise/unary.c",
        "elementwise/unary.h",
        "ek_unary_args",
        **macros,
    )
    return KernelCall(
        kernel,
        {"n": n, "x": x, "y": y, "table": ctx.weights.add(table)},
        math.ceil(n / UNARY_CHUNK),
    )


def lower_table(ctx: Context, node: Node) -> list[KernelCall]:
    """An operator with one operand."""
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    table = lookup_table(node.op, x, y)
    return [look_up(ctx, table, x.elements, Value(x.name), Value(y.name))]


def lower_single(ctx: Context, node: Node) -> list[KernelCall] | None:
    """An operator with two operands, one of them a constant scalar; None for others."""
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    for x, other in ((a, b), (b, a)):
        if other.data is None or other.elements != 1 or x.elements != y.elements:
            continue
        table = _with_constant(ctx.graph, node, x, other.data)[0]
        return [look_up(ctx, table, x.elements, Value(x.name), Value(y.name))]
    return None


def _with_constant(graph: Graph, node: Node, x: Tensor, other: Array) -> Array:
    """Results for each value of the constant operand (rows) and each value of x (columns)."""
    a, b, y = (graph.tensors[name or ""] for name in (*node.inputs, *node.outputs))
    quantized, repeated = np.broadcast_arrays(every_value_of(x), other.reshape(-1, 1))
    pair = [quantized, repeated] if x.name == a.name else [repeated, quantized]
    return node.op.reference(pair, [a, b], [y])[0]


def tables_of(graph: Graph, node: Node, x: Tensor) -> Array | None:
    """The results of `node` for all values of an 8-bit x, if it depends on nothing else.

    [1, 256] if it is a function of x alone, [channels, 256] if also of the channel, else None.
    """
    if x.dtype.bytes != 1 or not x.is_quantized or len(node.outputs) != 1:
        return None
    y = graph.tensors[node.outputs[0]]
    if node.op.elementwise and len(node.inputs) == 1:
        return lookup_table(node.op, x, y)[None] if y.is_quantized else None
    if (
        not isinstance(node.op, Binary)
        or node.op.on_quantized is OnQuantized.NEVER
        or y.shape != x.shape
    ):
        return None
    others = [graph.tensors[name or ""] for name in node.inputs if name != x.name]
    if len(others) != 1 or others[0].data is None or not others[0].is_quantized:
        return None
    by_channel = is_per_channel(others[0], y)
    return _with_constant(graph, node, x, others[0].data) if by_channel else None


def look_up_of(ctx: Context, node: Node) -> tuple[dict[str, int], str, dict[str, Field]]:
    """The lookup function after `node`: kernel macros, name suffix, and the field `table`."""
    found = ctx.look_ups.get(node.name)
    if found is None:
        return {}, "", {}
    by_channel = len(found.tables) > 1
    fields: dict[str, Field] = {"table": ctx.weights.add(found.tables)}
    return {"LOOK_UP": 1 + by_channel}, "_tables" if by_channel else "_table", fields


def table_of_pairs(op: Operator, a: Tensor, b: Tensor, y: Tensor) -> Array:
    """Results for each pair of bytes: row a, column b, both as unsigned numbers."""
    first, second = np.meshgrid(every_value_of(a), every_value_of(b), indexing="ij")
    return op.reference([first, second], [a, b], [y])[0]


def every_value_of(t: Tensor) -> Array:
    """All values of a tensor's type, ordered by their bits as an unsigned number."""
    count = 1 << 8 * t.dtype.bytes
    unsigned = {1: np.uint8, 2: np.uint16}[t.dtype.bytes]
    return np.arange(count).astype(unsigned).view(t.dtype.numpy)

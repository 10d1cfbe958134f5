"""Operators on codes as tables of all their results: 8 or 16 bits in, or two codes of 8 bits."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.graph.ops import Binary
from edgekit.host.graph.quantization import lookup_table
from edgekit.host.graph.types import Array, Node, Tensor
from edgekit.host.lower.context import Context
from edgekit.host.lower.plan import Call, Value

_CHUNK = 4096  # EK_UNARY_CHUNK in elementwise/unary.h
_CODES = {1: "uint8_t", 2: "uint16_t"}  # by bytes


def look_up(ctx: Context, table: Array, n: int, x: Value, y: Value) -> Call:
    """y = table[x] of `n` codes; the index is the code's bits as an unsigned number."""
    bits, made = (8 if table.size == 256 else 16), 8 * table.itemsize
    macros: dict[str, str | int] = {"OP_BYTE_TABLE": 1}
    if (bits, made) != (8, 8):
        macros = {"OP_TABLE": 1, "TX": _CODES[bits // 8], "TY": _CODES[table.itemsize]}
    kernel = ctx.kernel(
        f"table_{bits}bit" + ("" if bits == made else f"_to_{made}bit"),
        "elementwise/unary.c",
        "elementwise/unary.h",
        "ek_unary_args",
        **macros,
    )
    return Call(
        kernel, {"n": n, "x": x, "y": y, "table": ctx.weights.add(table)}, math.ceil(n / _CHUNK)
    )


def lower_table(ctx: Context, node: Node) -> list[Call]:
    """An operator of one operand."""
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    table = lookup_table(node.op, x, y)
    return [look_up(ctx, table, x.elements, Value(x.name), Value(y.name))]


def lower_single(ctx: Context, node: Node) -> list[Call] | None:
    """An operator of two operands, of which one is a constant of one value; else None."""
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    for x, other in ((a, b), (b, a)):
        if other.data is None or other.elements != 1 or x.elements != y.elements:
            continue
        codes = _every(x)
        repeated = np.broadcast_to(other.data.reshape(1), codes.shape)
        pair = [codes, repeated] if x is a else [repeated, codes]
        table = node.op.reference(pair, [a, b], [y])[0]
        return [look_up(ctx, table, x.elements, Value(x.name), Value(y.name))]
    return None


def table_of_pairs(op: Binary, a: Tensor, b: Tensor, y: Tensor) -> Array:
    """Results for each pair of bytes: row a, column b, both as unsigned numbers."""
    first, second = np.meshgrid(_every(a), _every(b), indexing="ij")
    return op.reference([first, second], [a, b], [y])[0]


def _every(t: Tensor) -> Array:
    count = 1 << 8 * t.dtype.bytes
    unsigned = {1: np.uint8, 2: np.uint16}[t.dtype.bytes]
    return np.arange(count).astype(unsigned).view(t.dtype.numpy)

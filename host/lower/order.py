"""Lowering of operators that order values."""

from __future__ import annotations

import math

from edgekit.host.graph import ops
from edgekit.host.graph.types import Node
from edgekit.host.lower.context import Context
from edgekit.host.lower.plain import C_NAMES
from edgekit.host.lower.plan import Call, Field, Value


def lower_top_k(ctx: Context, node: Node) -> list[Call]:
    op = node.op
    assert isinstance(op, ops.TopK)
    x, values = ctx.tensor(node.inputs[0]), node.outputs[0]
    n = x.shape[-1]
    fields: dict[str, Field] = {
        "n": n,
        "k": op.k,
        "x": Value(x.name),
        "y": Value(values),
        "at": Value(node.outputs[1]),
    }
    macros: dict[str, str | int] = {"SMALLEST": 1} if op.smallest else {}
    kernel = ctx.kernel(
        f"{x.dtype.value}_{'least' if op.smallest else 'most'}_{op.index.value}",
        "reduce/top_k.c",
        "reduce/top_k.h",
        "ek_top_k_args",
        TX=C_NAMES[x.dtype],
        TI=C_NAMES[op.index],
        **macros,
    )
    return [Call(kernel, fields, math.prod(x.shape[:-1]), max(1, 4096 // n))]

"""Lowers sorting and selection operators."""

from __future__ import annotations

import math

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.common.arguments import C_NAMES, operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value


@lowers(ops.TopK)
def lower_top_k(ctx: Context, node: Node) -> list[KernelCall]:
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
        None,
        "ek_top_k_args",
        TX=C_NAMES[x.dtype],
        TI=C_NAMES[op.index],
        **macros,
    )
    return [KernelCall(kernel, fields, math.prod(x.shape[:-1]), max(1, 4096 // n))]


@lowers(ops.SelectBoxes)
def lower_select_boxes(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.SelectBoxes)
    boxes, order, scores = (ctx.tensor(name) for name in node.inputs)
    batch, classes, n = order.shape
    fields: dict[str, Field] = {
        "n": n,
        "classes": classes,
        "limit": op.limit,
        "overlap": op.overlap,
        "least": op.least,
        "boxes": operand_of(ctx, boxes),
        "order": operand_of(ctx, order),
        "scores": operand_of(ctx, scores),
        "y": Value(node.outputs[0]),
    }
    macros: dict[str, str | int] = {"ABOVE": 1} if op.above else {}
    kernel = ctx.kernel(
        f"select_boxes_{'above_' if op.above else ''}{order.dtype.value}",
        "reduce/select.c",
        "reduce/select.h",
        "ek_select_args",
        TI=C_NAMES[order.dtype],
        **macros,
    )
    return [KernelCall(kernel, fields, batch * classes)]

"""Lowers scatters: rows written at given indices."""

from __future__ import annotations

import math

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.common.arguments import C_NAMES, operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value, base_of

_TASK_BYTES, _TASKS = 1 << 16, 16  # few tasks, because each one reads all indices


@lowers(ops.Scatter)
def lower_scatter(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.Scatter)
    x, indices, updates = (ctx.tensor(name) for name in node.inputs)

    rows = x.shape[0]
    in_place = base_of(ctx.aliases, x.name) == base_of(ctx.aliases, node.outputs[0])
    tasks = 1 if in_place else min(_TASKS, rows, math.ceil(x.bytes / _TASK_BYTES))
    step = math.ceil(rows / max(tasks, 1))
    fields: dict[str, Field] = {
        "rows": rows,
        "step": step,
        "count": indices.elements,
        "run": math.prod(x.shape[1:]),
        "x": operand_of(ctx, x),
        "indices": operand_of(ctx, indices),
        "updates": operand_of(ctx, updates),
        "y": Value(node.outputs[0]),
    }
    kernel = ctx.kernel(
        f"{x.dtype.value}_scatter_{op.join}_{indices.dtype.value}",
        "layout/scatter.c",
        None,
        "ek_scatter_args",
        T=C_NAMES[x.dtype],
        TI=C_NAMES[indices.dtype],
        **{f"JOIN_{op.join.upper()}": 1},
    )
    return [KernelCall(kernel, fields, math.ceil(rows / step))]

"""Attention to a cache: product/attention.c."""

from __future__ import annotations

from edgekit.device.runtime.kernel_facts import ATTENTION_ROWS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops import CachedAttention
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import KernelCall, Value


@lowers(ops.CachedAttention)
def lower_attention(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, CachedAttention)
    query, keys, values, position = (ctx.tensor(name) for name in node.inputs)
    (heads, count, size), (shared, context, _) = query.shape, keys.shape
    rows = heads // shared * count
    kernel = ctx.kernel("f32_attention", "product/attention.c", None, "ek_attention_args")
    blocks = -(-rows // ATTENTION_ROWS)
    return [
        KernelCall(
            kernel,
            {
                "rows": rows,
                "count": count,
                "context": context,
                "size": size,
                "window": op.window,
                "scale": op.scale,
                "cap": op.cap,
                "position": Value(position.name),
                "query": Value(query.name),
                "keys": Value(keys.name),
                "values": Value(values.name),
                "y": Value(node.outputs[0]),
            },
            shared * blocks,
        )
    ]

"""Attention to a cache: product/attention.c."""

from __future__ import annotations

from edgekit.device.runtime.kernel_facts import ATTENTION_ROWS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops import CachedAttention
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import KernelCall, Value


@lowers(ops.CachedAttention)
def lower_attention(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, CachedAttention)
    query, keys, values, position, *scales = (ctx.tensor(name) for name in node.inputs)
    (heads, count, size), (shared, context, _) = query.shape, keys.shape
    rows = heads // shared * count
    eight, source = keys.dtype is DType.I8, "product/attention.c"
    kernel = (
        ctx.kernel("s8_attention", source, None, "ek_attention_args", EIGHT=1)
        if eight
        else ctx.kernel("f32_attention", source, None, "ek_attention_args")
    )
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
                "key_scale": Value(scales[0].name) if eight else None,
                "value_scale": Value(scales[1].name) if eight else None,
                "y": Value(node.outputs[0]),
            },
            shared * blocks,
        )
    ]

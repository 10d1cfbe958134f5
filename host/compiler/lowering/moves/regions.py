"""Lowers the pooling of regions of images."""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.common.arguments import operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value


@lowers(ops.RoiAlign)
def lower_roi_align(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.RoiAlign)
    fields = _fields(ctx, node, op)
    fields["images"] = operand_of(ctx, ctx.tensor(node.inputs[2]))
    fields["samples"], fields["half_pixel"] = op.samples, int(op.half_pixel)
    name, macro = ("max", "OP_MAX") if op.largest else ("avg", "OP_AVERAGE")
    source, symbol = "pool/roi_align.c", f"f32_roi_align_{name}"
    kernel = ctx.kernel(symbol, source, None, "ek_roi_align_args", **{macro: 1})
    return [KernelCall(kernel, fields, _rows(ctx, node))]


@lowers(ops.MaxRoiPool)
def lower_max_roi_pool(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.MaxRoiPool)
    kernel = ctx.kernel("f32_roi_pool", "pool/roi_pool.c", None, "ek_roi_pool_args")
    return [KernelCall(kernel, _fields(ctx, node, op), _rows(ctx, node))]


def _fields(ctx: Context, node: Node, op: ops.RoiAlign | ops.MaxRoiPool) -> dict[str, Field]:
    x, regions = (ctx.tensor(name) for name in node.inputs[:2])
    n, h, w, c = x.shape
    return {
        "n": n, "h": h, "w": w, "c": c, "oh": op.size[0], "ow": op.size[1], "scale": op.scale,
        "x": operand_of(ctx, x), "regions": operand_of(ctx, regions),
        "y": Value(node.outputs[0]),
    }  # fmt: skip


def _rows(ctx: Context, node: Node) -> int:
    """Tasks: the rows of bins of all regions."""
    regions, high, *_ = ctx.tensor(node.outputs[0]).shape
    return regions * high

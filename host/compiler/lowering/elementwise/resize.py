"""Bilinear resizing."""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops import ResizeBilinear
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

# Macros per type besides TX: the type of sums of integer weights, or how sums are rounded.
_SUMS: dict[DType, dict[str, str | int]] = {
    DType.F32: {},
    DType.F16: {},
    DType.U8: {"ROUNDED": 1},
    DType.I8: {"ACC_T": "int32_t"},
    DType.I16: {"ACC_T": "int64_t"},
}
_ONCE: dict[str, str | int] = {"ROUNDED": 2}


@lowers(ops.ResizeBilinear)
def lower_resize(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ResizeBilinear)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    n, h, w, c = x.shape
    fields: dict[str, Field] = {
        "rows": _build_resize_axis(op, 0, h),
        "columns": _build_resize_axis(op, 1, w),
        "c": c,
        "oh": op.size[0],
        "ow": op.size[1],
        "pitch": ctx.pitch(y.name),
        "x": Value(x.name),
        "y": Value(y.name),
    }
    once = y.dtype is DType.I8 and not op.is_fixed_point(y)
    kernel = ctx.of_floats(x.dtype).kernel(
        f"{x.dtype.value}_resize_bilinear{'_once' if once else ''}",
        "layout/resize.c",
        "layout/resize.h",
        "ek_resize_args",
        TX=C_TYPES[x.dtype],
        **(_ONCE if once else _SUMS[x.dtype]),
    )
    return [KernelCall(kernel, fields, n * op.size[0])]


def _build_resize_axis(op: ResizeBilinear, axis: int, held: int) -> Field:
    """Builds an ek_resize_axis; `held`: rows (or columns) of the input."""
    band = op.along(axis, held)
    step, offset = op.fixed_step(band.source, band.target)
    return {
        "size": band.source,
        "held": held,
        "origin": band.origin,
        "begin": band.begin,
        "scale": float(op.step(band.source, band.target)),
        "half_pixel": int(op.half_pixel_centers),
        "step": step,
        "offset": offset,
    }

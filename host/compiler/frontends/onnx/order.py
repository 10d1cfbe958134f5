"""Import of ONNX operators that sort."""

from __future__ import annotations

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor

_HIGHEST_BIT = 1 << 63


def top_k(call: OnnxCall) -> list[Tensor]:
    """[values, indices]; always sorted, as `sorted` = 0 permits."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", -1), len(x.shape))
    k = call.single(1, "k")
    op = ops.TopK(k, not call.integer("largest", 1))
    keys = call.last(x, axis)
    if x.dtype not in (DType.U64, DType.U32, DType.U16):
        made = call.builder.emit_all(op, [keys], x.quant)
        return [call.back(t, axis) for t in made]
    values, places = call.builder.emit_all(op, [signed(call, keys)])
    if x.dtype is DType.U64:
        bits = call.emit(ops.BitCast(DType.U64), values)
        values = call.emit(ops.BitwiseXor(), bits, call.scalar(_HIGHEST_BIT, bits))
    return [call.back(t, axis) for t in (call.convert(values, x.dtype), places)]


def signed(call: OnnxCall, x: Tensor) -> Tensor:
    """Unsigned integers as s64, with the same order."""
    if x.dtype is not DType.U64:
        return call.convert(x, DType.I64)
    flipped = call.emit(ops.BitwiseXor(), x, call.scalar(_HIGHEST_BIT, x))
    return call.emit(ops.BitCast(DType.I64), flipped)

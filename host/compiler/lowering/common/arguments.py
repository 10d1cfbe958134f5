"""Arguments and types of kernels, as C needs them."""

from __future__ import annotations

import dataclasses

from edgekit.host.compiler.ir.types import DType, Node, Operator, Tensor
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.plan import Field, Value

# The types that kernels compute in
C_TYPES = {
    DType.F32: "float",
    DType.F16: "_Float16",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.I16: "int16_t",
}
# The types that hold values
C_NAMES = {
    DType.F32: "float",
    DType.F16: "uint16_t",
    DType.F64: "double",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.I16: "int16_t",
    DType.U16: "uint16_t",
    DType.I32: "int32_t",
    DType.U32: "uint32_t",
    DType.I64: "int64_t",
    DType.U64: "uint64_t",
    DType.BOOL: "uint8_t",
}


def operand_of(ctx: Context, t: Tensor) -> Field:
    """A kernel operand, which may be constant."""
    return Value(t.name) if t.data is None else ctx.weights.add(t.data)


def values_of(ctx: Context, node: Node) -> dict[str, Field]:
    """The operands and the result as kernel arguments."""
    a, b = (operand_of(ctx, ctx.tensor(name)) for name in node.inputs[:2])
    return {"a": a, "b": b, "y": Value(node.outputs[0])}


def parameters_of(op: Operator) -> tuple[float, float]:
    """A function's attributes as kernel parameters."""
    first, second = (*(float(v) for v in dataclasses.astuple(op)), 0.0, 0.0)[:2]
    return first, second

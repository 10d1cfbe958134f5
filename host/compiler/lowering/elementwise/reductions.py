"""Means, sums and products along axes (reduce/f32_mean.c, i8_mean.c, quantized_product.c,
softmax_mean.c)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.device.runtime.kernel_facts import REDUCE_BLOCK
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.checks import FLOATS
from edgekit.host.compiler.ir.ops import (
    Mean,
    MeanOfSums,
    QuantizedSum,
    ReduceProduct,
    ReduceSum,
    SoftmaxMean,
)
from edgekit.host.compiler.ir.quantization import (
    Multiplier,
    mean_multiplier,
    multiplier_of,
    quantized_range,
    scale_of,
    short_factor,
    zero_point_of,
)
from edgekit.host.compiler.ir.quantized_elementwise import product_multiplier, total_line
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.context import Context, lowers, padded
from edgekit.host.compiler.lowering.elementwise import plain
from edgekit.host.compiler.lowering.elementwise.elementwise import scalar_factor_fields
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_LARGEST_SUM = 2**31 - 1


@lowers(ops.ReduceSum)
def lower_sum(ctx: Context, node: Node) -> list[KernelCall]:
    """Sums quantized values as a mean, others as totals."""
    if ctx.tensor(node.inputs[0]).is_quantized:
        return lower_mean(ctx, node)
    return plain.lower_total(ctx, node)


def _reduction_extents(ctx: Context, node: Node, axes: Sequence[int]) -> tuple[int, int, int]:
    """The number of elements before, within and after the reduced axes."""
    shape = ctx.tensor(node.inputs[0]).shape
    real = sorted(a for a in axes if shape[a] > 1)
    if real and math.prod(shape[real[0] : real[-1] + 1]) != math.prod(shape[a] for a in real):
        raise ctx.unsupported(node, f"a {node.op.kind} over the separate axes {real}")
    first, last = (real[0], real[-1] + 1) if real else (0, 0)
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


@lowers(ops.ReduceProduct)
def lower_product(ctx: Context, node: Node) -> list[KernelCall]:
    """Multiplies quantized values step by step, others as totals."""
    op, x, y = node.op, ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    assert isinstance(op, ReduceProduct)
    if not x.is_quantized:
        return plain.lower_total(ctx, node, op.saturates and x.dtype is DType.I32)
    outer, count, inner = _reduction_extents(ctx, node, op.axes)
    multiplier, right = short_factor(product_multiplier(x, y, count))
    low, high = quantized_range(y.dtype)
    fields: dict[str, Field] = {
        "outer": outer, "reduced": count, "inner": inner, "x": Value(x.name), "y": Value(y.name),
        "x_zero": zero_point_of(x), "y_zero": zero_point_of(y), "low": low, "high": high,
        "multiplier": int(multiplier[0]), "right": int(right[0]),
    }  # fmt: skip
    kernel = ctx.kernel(
        f"{x.dtype.value}_product", "reduce/quantized_product.c", "reduce/mean.h", "ek_mean_args",
        TX=C_TYPES[x.dtype],
    )  # fmt: skip
    return [KernelCall(kernel, fields, outer * math.ceil(inner / REDUCE_BLOCK))]


@lowers(ops.Mean)
def lower_mean(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, Mean | ReduceSum)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    outer, count, inner = _reduction_extents(ctx, node, op.axes)
    fields: dict[str, Field] = {
        "outer": outer,
        "reduced": count,
        "inner": inner,
        "x": Value(x.name),
        "y": Value(y.name),
    }
    macros: dict[str, str | int] = {}
    name = f"{x.dtype.value}_mean"
    if x.dtype not in FLOATS:
        low, high = quantized_range(y.dtype)
        step, bias = total_line(x, y, count)
        exact = multiplier_of(scale_of(x) / scale_of(y))
        factor = mean_multiplier(x, y, count) if isinstance(op, Mean) else exact
        fields |= {
            "x_zero": zero_point_of(x),
            "y_zero": zero_point_of(y),
            "low": low,
            "high": high,
            **_factor_fields(factor),
            "step": float(step),
            "bias": float(bias),
        }
        macros["TX"] = C_TYPES[x.dtype]
        if isinstance(op, ReduceSum) and x.dtype is not DType.U8:
            name, macros["IN_FLOAT"] = f"{x.dtype.value}_total", 1
    source = "reduce/f32_mean.c" if x.dtype in FLOATS else "reduce/i8_mean.c"
    kernel = ctx.of_floats(x.dtype).kernel(name, source, "reduce/mean.h", "ek_mean_args", **macros)
    return [KernelCall(kernel, fields, outer * math.ceil(inner / REDUCE_BLOCK))]


@lowers(ops.QuantizedSum)
def lower_quantized_sum(ctx: Context, node: Node) -> list[KernelCall]:
    op, x = node.op, ctx.tensor(node.inputs[0])
    assert isinstance(op, QuantizedSum)
    outer, count, inner = _reduction_extents(ctx, node, op.axes)
    fields: dict[str, Field] = {
        "outer": outer, "reduced": count, "inner": inner, "x": Value(x.name),
        "y": Value(node.outputs[0]), "x_zero": zero_point_of(x),
        "low": -_LARGEST_SUM, "high": _LARGEST_SUM,
    }  # fmt: skip
    kernel = ctx.kernel(
        f"{x.dtype.value}_quantized_sum", "reduce/i8_mean.c", "reduce/mean.h", "ek_mean_args",
        TX=C_TYPES[x.dtype], TY="int32_t", TO_SUMS=1,
    )  # fmt: skip
    return [KernelCall(kernel, fields, outer * math.ceil(inner / REDUCE_BLOCK))]


@lowers(ops.MeanOfSums)
def lower_mean_of_sums(ctx: Context, node: Node) -> list[KernelCall]:
    op, x, y = node.op, ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    assert isinstance(op, MeanOfSums)
    outer, count, inner = _reduction_extents(ctx, node, op.axes)
    low, high = quantized_range(y.dtype)
    fields: dict[str, Field] = {
        "outer": outer, "reduced": count, "inner": inner, "x": Value(x.name), "y": Value(y.name),
        "y_zero": zero_point_of(y), "low": low, "high": high,
        **_factor_fields(mean_multiplier(x, y, op.count)),
    }  # fmt: skip
    kernel = ctx.kernel(
        f"{y.dtype.value}_mean_of_sums", "reduce/i8_mean.c", "reduce/mean.h", "ek_mean_args",
        TX="int32_t", TY=C_TYPES[y.dtype],
    )  # fmt: skip
    return [KernelCall(kernel, fields, outer * math.ceil(inner / REDUCE_BLOCK))]


@lowers(ops.SoftmaxMean)
def lower_softmax_mean(ctx: Context, node: Node) -> list[KernelCall]:
    op, x = node.op, ctx.tensor(node.inputs[0])
    assert isinstance(op, SoftmaxMean)
    n, inner = x.shape[-1], ctx.of_floats(x.dtype)
    values = padded(op.values, round_up(n, inner.isa.vl), np.dtype(np.float32))
    fields: dict[str, Field] = {
        "n": n,
        "x": Value(x.name),
        "values": ctx.weights.add(values),
        "y": Value(node.outputs[0]),
        "beta": op.beta,
    }
    kernel = inner.kernel(
        f"{x.dtype.value}_softmax_mean", "reduce/softmax_mean.c", None, "ek_softmax_mean_args"
    )
    return [KernelCall(kernel, fields, x.elements // n)]


def _factor_fields(factor: Multiplier) -> dict[str, Field]:
    return {
        name.removeprefix("y_"): value for name, value in scalar_factor_fields(factor, "y").items()
    }

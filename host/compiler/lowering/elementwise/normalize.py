"""Normalizations (reduce/layer_norm.c, reduce/unit_length.c)."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops import LayerNorm
from edgekit.host.compiler.ir.quantization import quantized_range, zero_point_of
from edgekit.host.compiler.ir.types import Array, DType, Node, Tensor
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_TASK = 4096  # values: the minimum work per thread


@lowers(ops.LayerNorm)
def lower_layer_norm(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, LayerNorm)
    x = ctx.tensor(node.inputs[0])
    n, terms = op.row(x.shape), [ctx.optional(node, i) for i in (1, 2)]
    # Kernels for f16 compute in f32, so constants are widened once.
    widened = x.dtype is DType.F16 and all(t is None or t.data is not None for t in terms)
    dtype = (DType.F32 if widened else x.dtype).numpy
    factor, shift = (
        _term_or_default(ctx, term, np.full(n, default, dtype))
        for term, default in zip(terms, (1, 0), strict=True)
    )
    fields: dict[str, Field] = {
        "n": n,
        "x": Value(x.name),
        "factor": factor,
        "shift": shift,
        "epsilon": op.epsilon,
        "y": Value(node.outputs[0]),
    }
    kernel = ctx.of_floats(x.dtype).kernel(
        f"{x.dtype.value}_layer_norm" + ("_wide" if widened else ""),
        "reduce/layer_norm.c",
        "reduce/layer_norm.h",
        "ek_layer_norm_args",
        **({"WIDE_TERMS": 1} if widened else {}),
    )
    return [KernelCall(kernel, fields, x.elements // n, max(1, _TASK // n))]


@lowers(ops.UnitLength)
def lower_unit_length(ctx: Context, node: Node) -> list[KernelCall]:
    x = ctx.tensor(node.inputs[0])
    n, (low, high) = x.shape[-1], quantized_range(x.dtype)
    fields: dict[str, Field] = {
        "n": n,
        "x_zero": zero_point_of(x),
        "x": Value(x.name),
        "y": Value(node.outputs[0]),
    }
    kernel = ctx.kernel(
        f"{x.dtype.value}_unit_length",
        "reduce/unit_length.c",
        None,
        "ek_unit_length_args",
        TX=C_TYPES[x.dtype],
        Y_ZERO=(low + high + 1) // 2,
        LOW=low,
        HIGH=high,
    )
    return [KernelCall(kernel, fields, x.elements // n, max(1, _TASK // n))]


def _term_or_default(ctx: Context, term: Tensor | None, default: Array) -> Field:
    """A constant in the type of `default`, or a tensor that is computed."""
    if term is None:
        return ctx.weights.add(default)
    if term.data is None:
        return Value(term.name)
    return ctx.weights.add(term.data.astype(default.dtype))

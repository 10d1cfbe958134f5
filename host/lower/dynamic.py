"""Fully connected layers whose activations are quantized as a whole, as they run:
elementwise/dynamic_quantize.c makes codes and the bias that their zero point asks for, and
conv/i8_conv.c multiplies bytes."""

from __future__ import annotations

import math

import numpy as np

from edgekit.device.kernel_facts import UNARY_CHUNK
from edgekit.host.align import round_up
from edgekit.host.graph import ops
from edgekit.host.graph.types import Array, DType, Node, Tensor
from edgekit.host.lower.context import Context, Rules, padded
from edgekit.host.lower.plan import Call, Field, Kernel, Value
from edgekit.host.lower.product_i8 import float_product, zero_of_rows
from edgekit.host.lower.requantize import wrap_i32
from edgekit.host.lower.window import C_TYPES, Window, bias_vector
from edgekit.kb.isa import ByteProduct

_F32 = np.dtype(np.float32)


def lower_dynamic(ctx: Context, node: Node) -> list[Call]:
    op = node.op
    assert isinstance(op, ops.DynamicFullyConnected)
    x, w = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    weights = ctx.constant(node, 1, "weights")
    assert w.quant is not None
    n, k = weights.shape
    m, width, w_zero = x.elements // k, round_up(n, ctx.isa.vl), zero_of_rows(w)
    # VNNI multiplies bytes without a sign by ones with it.
    unsigned = ctx.isa.i8 is ByteProduct.DOT4_US
    coded = Tensor(f"{x.name}:codes", (m, k), DType.U8 if unsigned else DType.I8)
    window = Window((1, 1, m, k), (1, 1, m, n), (1, 1))
    middle = 128 if unsigned else 0
    product = float_product(ctx, node, window, weights, coded, (middle, w_zero), False)
    codes, scale, zero = ctx.scratch(node, m * k), ctx.scratch(node, 4), ctx.scratch(node, 4)
    bias = ctx.scratch(node, 4 * width)
    low, high = op.activation.bounds
    scales = np.broadcast_to(w.quant.scale.astype(np.float32), (n,))
    fields: dict[str, Field] = {
        **product.fields,
        "x": codes,
        "weights": ctx.weights.add(product.weights),
        "bias": bias,
        "scale": ctx.weights.add(padded(scales, width, _F32)),
        "x_scale": scale,
        "bias_f32": ctx.weights.add(bias_vector(ctx.optional(node, 2), width, _F32)),
        "low_f32": low,
        "high_f32": high,
        "y": Value(node.outputs[0]),
    }
    found: dict[str, Field] = {
        "n": m * k,
        "x": Value(x.name),
        "y": codes,
        "scale": scale,
        "zero": zero,
        "channels": width,
        "at_128": product.fields["bias"],
        "step": ctx.weights.add(_step(weights, w_zero, width)),
        "bias": bias,
    }
    quantize = _kernel(ctx, f"quantize_{coded.dtype.value}_whole", TQ=C_TYPES[coded.dtype])
    return [
        Call(_kernel(ctx, "range_whole", RANGE=1), found, 1),
        Call(quantize, found, math.ceil(m * k / UNARY_CHUNK)),
        Call(product.kernel, fields, product.tasks),
    ]


def _kernel(ctx: Context, name: str, **macros: int | str) -> Kernel:
    file = "elementwise/dynamic_quantize.c"
    return ctx.kernel(name, file, None, "ek_dynamic_quantize_args", **macros)


def _step(weights: Array, zero: Array, width: int) -> Array:
    """What one step of the zero point of x adds to the sums, [width]."""
    sums = (weights.astype(np.int64) - zero).sum(axis=1)
    return wrap_i32(padded(-sums, width, np.dtype(np.int64)))


RULES: Rules = {
    ops.DynamicFullyConnected: lower_dynamic,
}

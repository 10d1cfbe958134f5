"""Fully connected layers and convolutions whose activations are quantized per tensor at run time.

elementwise/dynamic_quantize.c computes the quantized values and the bias for their zero point;
conv/i8_conv.c multiplies bytes.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.device.runtime.kernel_facts import UNARY_CHUNK
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node, Tensor
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.window import Window, bias_vector, window_of
from edgekit.host.compiler.lowering.context import Context, lowers, padded
from edgekit.host.compiler.lowering.gemm.product_i8 import float_product
from edgekit.host.compiler.lowering.gemm.requantize import wrap_i32
from edgekit.host.compiler.lowering.packing import zero_of_rows
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, Value
from edgekit.kb.targets.isa import ByteProduct

_F32 = np.dtype(np.float32)


@lowers(ops.DynamicFullyConnected)
def lower_dynamic(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.DynamicFullyConnected)
    weights = ctx.constant(node, 1, "weights")
    n, k = weights.shape
    m = ctx.tensor(node.inputs[0]).elements // k
    return _lower_product(
        ctx, node, Window((1, 1, m, k), (1, 1, m, n), (1, 1)), weights, op.activation
    )


@lowers(ops.DynamicConv2D)
def lower_dynamic_conv(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.DynamicConv2D)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    weights = ctx.constant(node, 1, "weights")
    plain = ops.Conv2D(op.stride, op.dilation, op.padding)
    window = window_of(plain, x, ctx.tensor(node.inputs[1]), y)
    return _lower_product(ctx, node, window, weights.reshape(len(weights), -1), op.activation)


def _lower_product(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation
) -> list[KernelCall]:
    """x through a window times weights [n, k].

    Padding is quantized along with x, because the quantized value of 0 is only known at run time.
    """
    x, w = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    assert w.quant is not None
    n, width, w_zero = len(weights), round_up(len(weights), ctx.isa.vl), zero_of_rows(w)
    # VNNI multiplies unsigned by signed bytes.
    unsigned = ctx.isa.i8 is ByteProduct.DOT4_US
    whole = window.whole
    stored = Tensor(f"{x.name}:quantized", whole.x, DType.U8 if unsigned else DType.I8)
    middle = 128 if unsigned else 0
    product = float_product(ctx, node, whole, weights, stored, (middle, w_zero), False)
    quantized, scale = ctx.scratch(node, stored.elements), ctx.scratch(node, 4)
    zero, bias = ctx.scratch(node, 4), ctx.scratch(node, 4 * width)
    low, high = activation.bounds
    scales = np.broadcast_to(w.quant.scale.astype(np.float32), (n,))
    fields: dict[str, Field] = {
        **product.fields,
        "x": quantized,
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
        "n": x.elements,
        "x": Value(x.name),
        "y": quantized,
        "scale": scale,
        "zero": zero,
        "channels": width,
        "at_128": product.fields["bias"],
        "step": ctx.weights.add(_zero_point_step(weights, w_zero, width)),
        "bias": bias,
        **_rows_of(window, whole),
    }
    bordered = window.padding.any
    name = f"quantize_{stored.dtype.value}_{'image' if bordered else 'whole'}"
    macros = {"IMAGE": 1} if bordered else {}
    tasks = whole.x[0] * whole.x[1] if bordered else math.ceil(x.elements / UNARY_CHUNK)
    quantize = _quantize_kernel(ctx, name, TQ=C_TYPES[stored.dtype], **macros)
    return [
        KernelCall(_quantize_kernel(ctx, "range_whole", RANGE=1), found, 1),
        KernelCall(quantize, found, tasks),
        KernelCall(product.kernel, fields, product.tasks),
    ]


def _rows_of(window: Window, whole: Window) -> dict[str, Field]:
    """The row layout of images and of their quantized copies, including borders."""
    (_, h, w, c), pad = window.x, window.padding
    return {
        "height": h,
        "quantized_height": whole.x[1],
        "top": pad.top,
        "row": w * c,
        "left": pad.left * c,
        "pitch": whole.x[2] * c,
    }


def _quantize_kernel(ctx: Context, name: str, **macros: int | str) -> Kernel:
    file = "elementwise/dynamic_quantize.c"
    return ctx.kernel(name, file, None, "ek_dynamic_quantize_args", **macros)


def _zero_point_step(weights: Array, zero: Array, width: int) -> Array:
    """The change of the sums per unit of x's zero point, [width]."""
    sums = (weights.astype(np.int64) - zero).sum(axis=1)
    return wrap_i32(padded(-sums, width, np.dtype(np.int64)))

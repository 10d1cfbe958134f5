"""Convolutions of 16-bit images with 8-bit weights (conv/conv_16x8.c)."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.ops import Conv2D16x8, Rounding
from edgekit.host.compiler.ir.quantization import (
    activation_range,
    convolution_multiplier,
    short_factor,
)
from edgekit.host.compiler.ir.types import Array, Node
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.context import Context, lowers, padded
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_BLOCK = 16  # channels of y per task
_TASK = 4096  # multiplications: the minimum work per thread


@lowers(ops.Conv2D16x8)
def lower_wide_conv(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, Conv2D16x8)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    weights, bias = ctx.constant(node, 1, "weights"), ctx.optional(node, 2)
    oc, kh, kw, depth = weights.shape
    (n, h, w, c), (_, oh, ow, _) = x.shape, y.shape
    window = Window((n, h, w, c), (n, oh, ow, oc), (kh, kw), op.stride, op.dilation, op.padding)
    share, depthwise = oc // op.groups, depth == 1 and op.groups > 1
    blocks = round_up(oc if depthwise else share, _BLOCK) // _BLOCK
    groups = 1 if depthwise else op.groups
    factor = convolution_multiplier(x, ctx.tensor(node.inputs[1]), y)
    multiplier: Array = factor.multiplier
    right: Array = -factor.shift if op.rounding is Rounding.TWICE else 31 - factor.shift
    if op.rounding is Rounding.SHORT:
        multiplier, right = short_factor(factor)
    low, high = activation_range(op.activation, y)
    terms = np.zeros(oc, np.int64) if bias is None else ctx.constant(node, 2, "bias")
    if depthwise:
        packed = weights.reshape(oc, kh, kw).transpose(1, 2, 0)
    else:
        packed = _pack_weights(weights, groups)
    i32 = np.dtype(np.int32)
    fields: dict[str, Field] = {
        "win": window.fields,
        "groups": groups,
        "depth": depth,
        "share": share,
        "blocks": blocks,
        "x": Value(x.name),
        "weights": ctx.weights.add(packed),
        "bias": ctx.weights.add(terms.astype(np.int64)),
        "multiplier": ctx.weights.add(padded(multiplier, oc, i32)),
        "right": ctx.weights.add(padded(right, oc, i32)),
        "low": low,
        "high": high,
        "y": Value(y.name),
    }
    macros: dict[str, str | int] = {"DEPTHWISE": 1} if depthwise else {}
    if op.rounding is not Rounding.SHORT:
        macros[op.rounding.name] = 1
    name = "_".join(["s16_conv", *(m.lower() for m in macros)])
    kernel = ctx.kernel(
        name, "conv/conv_16x8.c", "conv/conv_16x8.h", "ek_conv_16x8_args", BLOCK=_BLOCK, **macros
    )  # fmt: skip
    tasks = window.pixels * groups * blocks
    return [KernelCall(kernel, fields, tasks, max(1, _TASK // (kh * kw * depth * _BLOCK)))]


def _pack_weights(weights: Array, groups: int) -> Array:
    """[oc, kh, kw, depth] → [groups, blocks, kh, kw, depth, BLOCK], padded with zeros."""
    oc, kh, kw, depth = weights.shape
    share = oc // groups
    wide = np.zeros((groups, round_up(share, _BLOCK), kh, kw, depth), np.int8)
    wide[:, :share] = weights.reshape(groups, share, kh, kw, depth)
    return wide.reshape(groups, -1, _BLOCK, kh, kw, depth).transpose(0, 1, 3, 4, 5, 2)

"""8-bit 3x3 convolutions by the Winograd transform in integers (conv/i8_winograd.c)."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.costs.methods.winograd import GROUP, transformed
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.quantization import zero_point_of
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node
from edgekit.host.compiler.ir.winograd import whole_weights
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.tables import look_up_of
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.requantize import requantized_by
from edgekit.host.compiler.lowering.gemm.winograd import pack_points
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value
from edgekit.kb.targets.isa import Tile

_CHANNELS = 64  # whose weights are transformed together


def _points(weights: Array) -> Array:
    """[oc, 9 * c] → [36, c, oc]."""
    taps = weights.reshape(len(weights), 3, 3, -1)
    return whole_weights(taps).reshape(36, -1, len(weights))


def lower_bytes(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation, tile: Tile
) -> KernelCall:
    """`weights` [oc, k], less their zero point; a row of `tile` is 4x4 pixels."""
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    c, oc, nr = window.x[3], window.y[3], tile.nv * ctx.isa.vl
    depth, width = round_up(c, GROUP), round_up(oc, nr)
    x_zero = zero_point_of(x)
    signed_zero = x_zero - 128 * (x.dtype is DType.U8)
    correction = -signed_zero * weights.sum(axis=1)
    requantized = requantized_by(ctx, node, weights, correction, activation, width)
    after, called, table = look_up_of(ctx, node)
    kernel = ctx.kernel(
        f"{x.dtype.value}_winograd_{requantized.kind}_{tile.mr}x{nr}{called}",
        "conv/i8_winograd.c",
        "conv/i8_winograd.h",
        "ek_i8_winograd_args",
        MR=tile.mr,
        NV=tile.nv,
        TX=C_TYPES[x.dtype],
        TY=C_TYPES[y.dtype],
        **requantized.macros,
        **after,
    )
    points = np.zeros((36, depth, width), np.int16)
    for i in range(0, oc, _CHANNELS):
        points[:, :c, i : min(i + _CHANNELS, oc)] = _points(weights[i : i + _CHANNELS])
    dtype, in_order = x.dtype.value, ctx.board.in_order
    work = transformed(dtype, window.y[:3], (c, oc), ctx.isa.vl, tile, in_order)
    parts = work.parts(ctx.threads)
    fields: dict[str, Field] = {
        **requantized.fields,
        "win": window.fields,
        "panels": work.panels,
        "parts": parts,
        "x": Value(x.name),
        "x_zero": x_zero,
        "weights": ctx.weights.add(pack_points(points, nr, ctx.isa.vl)),
        "y": Value(y.name),
        "pitch": ctx.pitch(ctx.look_ups[node.name].out if table else y.name),
        **table,
    }
    return KernelCall(kernel, fields, work.groups * parts)

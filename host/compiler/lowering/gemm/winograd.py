"""f32 and f16 3x3 convolutions by the Winograd transform (conv/f32_winograd.c).

A tile of 4x4 outputs takes 36 multiplications per channel instead of 144; the additions of the
transforms are shared by many channels.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.costs.methods.winograd import Transformed
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node
from edgekit.host.compiler.ir.winograd import transform_weights
from edgekit.host.compiler.lowering.common.window import Window, bias_vector
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.epilogues import epilogue_of
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.compiler.lowering.plan import Call, Field, Value
from edgekit.kb.targets.isa import Tile


def lower_winograd(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation, tile: Tile
) -> Call:
    """`weights` [oc, 3 * 3 * c]; a row of `tile` is 4x4 pixels."""
    vl, dtype = ctx.isa.vl, ctx.tensor(node.outputs[0]).dtype
    function, called, epilogue = epilogue_of(ctx, node, window.y[3])
    kernel = ctx.kernel(
        f"{dtype.value}_winograd_{tile.mr}x{tile.nv * vl}{called}",
        "conv/f32_winograd.c",
        "conv/f32_winograd.h",
        "ek_f32_winograd_args",
        MR=tile.mr,
        NV=tile.nv,
        **function,
    )
    _, _, _, c = window.x
    shared = Transformed(_count_tiles(window), c, window.y[3], vl, tile)
    parts = shared.parts(ctx.threads)
    residual = ctx.optional(node, 3)
    low, high = activation.bounds
    fields: dict[str, Field] = {
        "win": window.fields,
        "panels": shared.panels,
        "parts": parts,
        "x": Value(str(node.inputs[0])),
        "weights": ctx.weights.add(_pack_weights(weights, c, tile.nv * vl, vl, dtype)),
        "bias": ctx.weights.add(bias_vector(ctx.optional(node, 2), window.y[3], dtype.numpy)),
        "residual": None if residual is None else Value(residual.name),
        "y": Value(node.outputs[0]),
        "pitch": ctx.pitch(node.outputs[0]),
        "low": low,
        "high": high,
        **epilogue,
    }
    return Call(kernel, fields, shared.groups * parts)


def _count_tiles(window: Window) -> int:
    n, h, w, _ = window.y
    return n * math.ceil(h / 4) * math.ceil(w / 4)


def _pack_weights(weights: Array, c: int, nr: int, vl: int, dtype: DType) -> Array:
    """[oc, 3 * 3 * c] → consecutive panels [36][c][nr] of transformed weights."""
    oc = weights.shape[0]
    taps = weights.reshape(oc, 3, 3, c)
    points = transform_weights(taps, dtype is DType.F16).reshape(36, c, oc)
    panels = [
        pack_panels(points[:, :, at : at + nr].reshape(36 * c, -1).T, nr, vl)
        for at in range(0, oc, nr)
    ]
    return np.concatenate(panels).astype(dtype.numpy)

"""f32 and f16 3x3 convolutions by the Winograd transform (conv/f32_winograd.c).

A tile of 4x4 outputs takes 36 multiplications per channel instead of 144; the additions of the
transforms are shared by many channels.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.costs.methods.winograd import Transformed, transformed_bytes
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node
from edgekit.host.compiler.ir.winograd import transform_weights
from edgekit.host.compiler.lowering.common.window import Window, bias_vector
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.epilogues import epilogue_of
from edgekit.host.compiler.lowering.narrow import narrowed
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.compiler.lowering.plan import Call, Field, Value
from edgekit.kb.targets.isa import Tile


def lower_winograd(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation, tile: Tile
) -> list[Call]:
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
    before, transformed = _transformed(ctx, node, weights, tile, dtype)
    low, high = activation.bounds
    fields: dict[str, Field] = {
        "win": window.fields,
        "panels": shared.panels,
        "parts": parts,
        "x": Value(str(node.inputs[0])),
        "weights": transformed,
        "bias": ctx.weights.add(bias_vector(ctx.optional(node, 2), window.y[3], dtype.numpy)),
        "residual": None if residual is None else Value(residual.name),
        "y": Value(node.outputs[0]),
        "pitch": ctx.pitch(node.outputs[0]),
        "low": low,
        "high": high,
        **epilogue,
    }
    return [*before, Call(kernel, fields, shared.groups * parts)]


def _transformed(
    ctx: Context, node: Node, weights: Array, tile: Tile, dtype: DType
) -> tuple[list[Call], Field]:
    """Transformed weights, and the calls that make them if they are not stored."""
    oc, vl, nr = len(weights), ctx.isa.vl, tile.nv * ctx.isa.vl
    c = weights.shape[1] // 9
    if ctx.transformed.get(node.name) != "made":
        points = transform_weights(weights.reshape(oc, 3, 3, c), dtype is DType.F16)
        return [], ctx.weights.add(_pack(points.reshape(36, c, oc), nr, vl).astype(dtype.numpy))
    narrow = narrowed(weights)
    values = weights if narrow is None else narrow.values
    macros = {} if narrow is None else {"NARROW": narrow.bits}
    scales = None if narrow is None else narrow.scales
    name = f"f32_winograd_weights{'' if narrow is None else narrow.suffix}"
    source = "layout/winograd_weights"
    kernel = ctx.kernel(name, f"{source}.c", f"{source}.h", "ek_winograd_weights_args", **macros)
    y = ctx.scratch(node, transformed_bytes(c, oc, "f32"))
    fields: dict[str, Field] = {
        "c": c,
        "oc": oc,
        "nr": nr,
        "weights": ctx.weights.add(_pack(values.reshape(oc, 9, c).transpose(2, 1, 0), nr, vl)),
        "scales": None if scales is None else ctx.weights.add(scales),
        "y": y,
    }
    return [Call(kernel, fields, math.ceil(oc / nr))], y


def _count_tiles(window: Window) -> int:
    n, h, w, _ = window.y
    return n * math.ceil(h / 4) * math.ceil(w / 4)


def _pack(points: Array, nr: int, vl: int) -> Array:
    """[a, b, oc] → consecutive panels [a][b][nr]."""
    rows = points.reshape(-1, points.shape[2])
    panels = [pack_panels(rows[:, at : at + nr].T, nr, vl) for at in range(0, points.shape[2], nr)]
    return np.concatenate(panels)

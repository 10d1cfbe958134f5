"""f32 and f16 3x3 convolutions by the Winograd transform (conv/f32_winograd.c).

A tile of 4x4 outputs takes 36 multiplications per channel instead of 144; the additions of the
transforms are shared by many channels.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.costs.methods.winograd import (
    Transformed,
    count_tiles,
    transformed_bytes,
)
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node
from edgekit.host.compiler.ir.winograd import transform_weights
from edgekit.host.compiler.lowering.common.window import Window, bias_vector
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.epilogues import epilogue_of, residual_of
from edgekit.host.compiler.lowering.narrow import narrowed
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.compiler.lowering.plan import STORED, Field, KernelCall, Value
from edgekit.kb.targets.isa import Tile


def lower_winograd(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation, tile: Tile
) -> list[KernelCall]:
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
    oc, nr = window.y[3], tile.nv * vl
    kept = ctx.transformed.get(node.name, STORED)
    step = math.ceil(math.ceil(oc / nr) / kept.parts) * nr
    making = _Making(ctx, node, weights, nr, step) if kept.kept == "made" else None
    low, high = activation.bounds
    fields: dict[str, Field] = {
        "win": window.fields,
        "x": Value(str(node.inputs[0])),
        "x_pitch": ctx.pitch(str(node.inputs[0])),
        "bias": ctx.weights.add(bias_vector(ctx.optional(node, 2), oc, dtype.numpy)),
        **residual_of(ctx, node),
        "y": Value(node.outputs[0]),
        "pitch": ctx.pitch(node.outputs[0]),
        "low": low,
        "high": high,
        **epilogue,
    }
    calls = []
    for first in range(0, oc, step):
        last = min(first + step, oc)
        shared = Transformed(count_tiles(window.y[:3]), c, last - first, vl, tile)
        parts = shared.parts(ctx.threads)
        if making is None:
            transformed: Field = _stored(ctx, weights[first:last], nr, dtype)
        else:
            calls.append(making.call(first, last))
            transformed = making.room
        own: dict[str, Field] = {
            "first": first,
            "last": last,
            "panels": shared.panels,
            "parts": parts,
            "weights": transformed,
        }
        calls.append(KernelCall(kernel, fields | own, shared.groups * parts))
    return calls


def _stored(ctx: Context, weights: Array, nr: int, dtype: DType) -> Field:
    taps = weights.reshape(len(weights), 3, 3, -1)
    points = transform_weights(taps, dtype is DType.F16).reshape(36, -1, len(weights))
    return ctx.weights.add(pack_points(points, nr, ctx.isa.vl).astype(dtype.numpy))


class _Making:
    """Transforms f32 weights of some channels of y at a time, in `room`, before they are used."""

    def __init__(self, ctx: Context, node: Node, weights: Array, nr: int, step: int) -> None:
        self._ctx, self._nr = ctx, nr
        narrow = narrowed(weights)
        self._values = weights if narrow is None else narrow.values
        self._scales = None if narrow is None else narrow.scales
        oc, k = weights.shape
        self.room = ctx.scratch(node, transformed_bytes(k // 9, min(step, oc), "f32"))
        name = f"f32_winograd_weights{'' if narrow is None else narrow.suffix}"
        source, arguments = "layout/winograd_weights", "ek_winograd_weights_args"
        macros = {} if narrow is None else {"NARROW": narrow.bits}
        self._kernel = ctx.kernel(name, f"{source}.c", f"{source}.h", arguments, **macros)

    def call(self, first: int, last: int) -> KernelCall:
        values, scales, nr = self._values[first:last], self._scales, self._nr
        taps = values.reshape(last - first, 9, -1).transpose(2, 1, 0)
        fields: dict[str, Field] = {
            "c": len(taps),
            "oc": last - first,
            "nr": nr,
            "weights": self._ctx.weights.add(pack_points(taps, nr, self._ctx.isa.vl)),
            "scales": None if scales is None else self._ctx.weights.add(scales[first:last]),
            "y": self.room,
        }
        return KernelCall(self._kernel, fields, math.ceil((last - first) / nr))


def pack_points(points: Array, nr: int, vl: int) -> Array:
    """[a, b, oc] → consecutive panels [a][b][nr]."""
    rows = points.reshape(-1, points.shape[2])
    panels = [pack_panels(rows[:, at : at + nr].T, nr, vl) for at in range(0, points.shape[2], nr)]
    return np.concatenate(panels)

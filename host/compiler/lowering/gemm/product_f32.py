"""The f32 or f16 matrix product (conv/f32_conv.c), with its tile and packed weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgekit.device.runtime.kernel_facts import F32_SCRATCH_BYTES, F32_SEGMENTS
from edgekit.host.compiler.costs.methods.operators import Form
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.exact import can_be_exact, rows_of
from edgekit.host.compiler.ir.sums import HALF_LONG
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node
from edgekit.host.compiler.lowering.common.window import Window, bias_vector, count_tasks
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.epilogues import epilogue_of
from edgekit.host.compiler.lowering.gemm.prefetch import runs_alone
from edgekit.host.compiler.lowering.gemm.winograd import lower_winograd
from edgekit.host.compiler.lowering.methods import (
    band_of,
    block_outer_of,
    form_of,
    method_of,
    tile_of,
)
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.compiler.lowering.plan import Call, Field, Value
from edgekit.kb.targets.isa import Tile


def float_form(node: Node, window: Window, weights: Array, dtype: DType) -> Form:
    """The form of an f32 or f16 product."""
    form = form_of(node, window, dtype.value, window.k * window.y[3] * dtype.bytes)
    return replace(form, exact=can_be_exact(rows_of(node.op, weights)))


def _pack_k_blocks(weights: Array, tile: Tile, vl: int, block: int | None) -> Array:
    """[n, k] → panels, one k block after the other."""
    k = weights.shape[1]
    step = block or max(k, 1)
    parts = [weights[:, at : at + step] for at in range(0, max(k, 1), step)]
    return np.concatenate([pack_panels(part, tile.nv * vl, vl) for part in parts])


def f32_product(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation
) -> Call:
    dtype = ctx.tensor(node.outputs[0]).dtype
    ctx = ctx.of_floats(dtype)
    method = method_of(ctx, node, float_form(node, window, weights, dtype))
    assert method is not None
    vl = ctx.isa.vl
    tile = tile_of(method, vl)
    if method.family == "winograd":
        return lower_winograd(ctx, node, window, weights, activation, tile)
    n = weights.shape[0]
    kh, kw = window.kernel
    fits = dtype.bytes * tile.mr * window.border <= F32_SCRATCH_BYTES or not window.padding.any
    segments = fits and (window.dilation[1] == 1 or kw == 1)
    count = kh if segments else kh * kw
    macros: dict[str, str | int] = {"MR": tile.mr, "NV": tile.nv}
    suffix = ""
    if window.pixels == 1:
        macros["ONE_PIXEL"] = 1
        suffix = "_one"
    if count > F32_SEGMENTS:
        macros["SEGMENTS"] = round_up(count, F32_SEGMENTS)
        suffix += f"_s{macros['SEGMENTS']}"
    if dtype is DType.F16 and window.k > HALF_LONG:
        macros["LONG_SUMS"] = 1
        suffix += "_long"
    if method.kc is not None:
        macros["K_BLOCK"] = method.kc
        suffix += f"_k{method.kc}"
    function, called, epilogue = epilogue_of(ctx, node, n)
    macros |= function
    name = f"{dtype.value}_conv_{tile.mr}x{tile.nv * vl}{suffix}{called}"
    kernel = ctx.kernel(name, "conv/f32_conv.c", "conv/f32_conv.h", "ek_f32_conv_args", **macros)
    tasks, panels = count_tasks(window, tile, vl)
    bias = ctx.optional(node, 2)
    residual = ctx.optional(node, 3)
    width = round_up(n, vl)
    low, high = activation.bounds
    block_outer = block_outer_of(ctx, node, method)
    fields: dict[str, Field] = {
        "win": window.fields,
        "pointwise": int(window.pointwise),
        "row_segments": int(segments),
        "panel_outer": int(method.split == "n"),
        "panels": panels,
        "band": band_of(ctx, node, method),
        "block_outer": int(block_outer),
        "x": Value(str(node.inputs[0])),
        "weights": ctx.weights.add(
            _pack_k_blocks(weights.astype(dtype.numpy), tile, vl, method.kc)
        ),
        "bias": ctx.weights.add(bias_vector(bias, width, dtype.numpy)),
        "zeros": ctx.weights.add(np.zeros(window.x[3], dtype.numpy)),
        "residual": None if residual is None else Value(residual.name),
        "y": Value(node.outputs[0]),
        "pitch": ctx.pitch(node.outputs[0]),
        "low": low,
        "high": high,
        **epilogue,
    }
    # With k blocks, one thread keeps partial sums, so its tasks must run as one piece.
    grain = math.ceil(tasks / ctx.threads) if block_outer else 1
    grain = tasks if window.pixels == 1 and runs_alone(ctx) else grain
    return Call(kernel, fields, tasks, grain)

"""The f32 or f16 matrix product (conv/f32_conv.c), with its tile and packed weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgekit.device.runtime.kernel_facts import (
    F32_SCRATCH_BYTES,
    F32_SEGMENTS,
    F32_UNPACKED_BYTES,
)
from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.exact import can_be_exact, rows_of
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.sums import HALF_LONG
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node
from edgekit.host.compiler.lowering.common.window import Window, bias_vector, count_tasks
from edgekit.host.compiler.lowering.context import Context, padded
from edgekit.host.compiler.lowering.gemm.epilogues import epilogue_of, residual_of
from edgekit.host.compiler.lowering.gemm.prefetch import grain_of
from edgekit.host.compiler.lowering.gemm.read_ahead import READ_AHEAD, may_read_ahead
from edgekit.host.compiler.lowering.gemm.winograd import lower_winograd
from edgekit.host.compiler.lowering.methods import (
    band_of,
    block_outer_of,
    form_of,
    method_of,
    tile_of,
)
from edgekit.host.compiler.lowering.narrow import Narrow, narrowed
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value
from edgekit.kb.targets.isa import Tile

# On ARM, widening f16 in registers costs 2 to 10% of a tile, in a panel as much as 2 to 4 rows.
_HALF_TILES = 4
_SCALAR_ROWS = 128  # a U74 takes 1.23 of the time of a MobileNet whose layers have 9 to 144 rows
_TAP_CHANNELS, _CROSSING = 64, 0.15  # channels per tap, share of windows that cross the border
_PIECES = 2  # per thread, where each widens the weights it reads


def float_form(node: Node, window: Window, weights: Array, dtype: DType) -> Form:
    """The form of an f32 or f16 product."""
    form = form_of(node, window, dtype.value, window.k * window.y[3] * dtype.bytes)
    direct = can_be_exact(rows_of(node.op, weights))
    if dtype is DType.F16:
        direct = not (isinstance(node.op, Conv2D) and node.op.winograd)
    return replace(form, direct=direct)


def _pack_k_blocks(weights: Array, tile: Tile, vl: int, block: int | None) -> Array:
    """[n, k] → panels, one k block after the other."""
    k = weights.shape[1]
    step = block or max(k, 1)
    parts = [weights[:, at : at + step] for at in range(0, max(k, 1), step)]
    return np.concatenate([pack_panels(part, tile.nv * vl, vl) for part in parts])


def _method(
    ctx: Context, node: Node, window: Window, weights: Array, dtype: DType
) -> OperatorMethod:
    """The method of a product; not Winograd's if its weights take too much memory (those of f16
    are chosen by `with_winograd`)."""
    form = float_form(node, window, weights, dtype)
    method = method_of(ctx, node, form)
    kept = dtype is not DType.F32 or node.name in ctx.transformed
    if method is not None and method.family == "winograd" and not kept:
        method = method_of(ctx, node, replace(form, direct=True))
    assert method is not None
    return method


@dataclass(frozen=True, eq=False)
class _Stored:
    """Weights [n, k] as they are stored, with the macros, the suffix of the kernel's name and the
    fields that go with them. `outer`: a panel is widened once for all pixels."""

    values: Array
    macros: Mapping[str, int]
    suffix: str
    fields: Mapping[str, Field]
    outer: bool


def _stored(
    ctx: Context,
    node: Node,
    window: Window,
    weights: Array,
    method: OperatorMethod,
    dtype: DType,
) -> _Stored:
    """Narrow weights stay narrow if a widened panel fits the kernel's buffer, or another variant
    stores them so. Those that few tiles of pixels read are widened in registers."""
    shared = (
        ctx.weights.panels.get(node.inputs[1] or "") == (method.nr, method.kc) and window.pixels > 1
    )
    plain = _Stored(weights.astype(dtype.numpy), {}, "", {}, False)
    narrow = None if ctx.strips else narrowed(plain.values)
    if narrow is None or not _pays(ctx, narrow, 1 if shared else window.pixels):
        return plain
    assert method.mr is not None and method.nr is not None
    width = round_up(len(weights), ctx.isa.vl)
    macros, suffix = {"NARROW": narrow.bits}, narrow.suffix
    fields: dict[str, Field] = {}
    if narrow.scales is not None:
        fields["scales"] = ctx.weights.add(padded(narrow.scales, width, np.dtype(np.float32)))
    tiles = _HALF_TILES if narrow.scales is None and ctx.isa.lanes else 1
    panel = (method.kc or window.k) * min(method.nr, width) * 4
    too_wide = panel > F32_UNPACKED_BYTES
    if window.pixels <= tiles * method.mr or (shared and too_wide):
        return _Stored(narrow.values, macros | {"NARROW_IN_REGISTERS": 1}, suffix, fields, False)
    if method.split == "m" and width * window.k * 4 <= F32_UNPACKED_BYTES:
        macros |= {"UNPACKS_ALL": 1}
        return _Stored(narrow.values, macros, f"{suffix}_all", fields, False)
    if too_wide:
        return plain
    return _Stored(narrow.values, macros, f"{suffix}_panels", fields, True)


def _pays(ctx: Context, narrow: Narrow, rows: int) -> bool:
    """Whether widening costs no more than it saves: plain C takes six instructions for an f16, as
    much as the products of several rows."""
    if ctx.isa.vl > 1:
        return True
    if narrow.scales is None:
        return rows >= _SCALAR_ROWS
    return rows == 1 or rows >= _SCALAR_ROWS // 2


def _copies_much(window: Window) -> bool:
    """Whether so many windows cross the border that reading all of them tap by tap takes less time
    than copying those for each panel of channels; in simulated time on A72 and A76."""
    return window.x[3] >= _TAP_CHANNELS and window.crossing >= _CROSSING


def f32_product(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation
) -> list[KernelCall]:
    dtype = ctx.tensor(node.outputs[0]).dtype
    ctx = ctx.of_floats(dtype)
    method = _method(ctx, node, window, weights, dtype)
    vl = ctx.isa.vl
    tile = tile_of(method, vl)
    if method.family == "winograd":
        return lower_winograd(ctx, node, window, weights, activation, tile)
    n = weights.shape[0]
    kh, kw = window.kernel
    stored = _stored(ctx, node, window, weights, method, dtype)
    outer = method.split == "n" or stored.outer
    fits = dtype.bytes * tile.mr * window.border <= F32_SCRATCH_BYTES or not window.padding.any
    x_pitch = ctx.pitch(str(node.inputs[0])) if node.inputs[0] in ctx.parts else window.x[3]
    joined = (window.dilation[1] == 1 or kw == 1) and x_pitch == window.x[3]
    segments = fits and joined and not (outer and _copies_much(window))
    count = kh if segments else kh * kw
    macros, suffix = kernel_instance(window, tile, dtype, count)
    if method.kc is not None:
        macros["K_BLOCK"] = method.kc
        suffix += f"_k{method.kc}"
    macros |= stored.macros
    if may_read_ahead(ctx, window.pixels, macros):
        macros[READ_AHEAD] = 1
        suffix += "_ahead"
    function, called, epilogue = epilogue_of(ctx, node, n)
    macros |= function
    name = f"{dtype.value}_conv_{tile.mr}x{tile.nv * vl}{suffix}{stored.suffix}{called}"
    kernel = ctx.kernel(name, "conv/f32_conv.c", "conv/f32_conv.h", "ek_f32_conv_args", **macros)
    tasks, panels = count_tasks(window, tile, vl)
    bias = ctx.optional(node, 2)
    width = round_up(n, vl)
    low, high = activation.bounds
    block_outer = block_outer_of(ctx, node, method)
    fields: dict[str, Field] = {
        "win": window.fields,
        "pointwise": int(window.pointwise),
        "row_segments": int(segments),
        "panel_outer": int(outer),
        "panels": panels,
        "band": band_of(ctx, node, method),
        "block_outer": int(block_outer),
        "x": Value(str(node.inputs[0])),
        "x_pitch": x_pitch,
        "weights": ctx.weights.add(_pack_k_blocks(stored.values, tile, vl, method.kc)),
        **stored.fields,
        "bias": ctx.weights.add(bias_vector(bias, width, dtype.numpy)),
        "zeros": ctx.weights.add(np.zeros(window.x[3], dtype.numpy)),
        **residual_of(ctx, node),
        "y": Value(node.outputs[0]),
        "pitch": ctx.pitch(node.outputs[0]),
        "low": low,
        "high": high,
        **epilogue,
    }
    # With k blocks, one thread keeps partial sums, so its tasks must run as one piece; pieces also
    # widen their weights.
    grain = math.ceil(tasks / ctx.threads) if block_outer else 1
    if stored.outer or "UNPACKS_ALL" in stored.macros:
        grain = max(grain, math.ceil(tasks / (_PIECES * ctx.threads)))
    return [KernelCall(kernel, fields, tasks, grain_of(ctx, window, tasks, grain))]


def kernel_instance(
    window: Window, tile: Tile, dtype: DType, segments: int
) -> tuple[dict[str, str | int], str]:
    """The macros of a direct kernel, and the part of its name that says them, for windows of so
    many segments."""
    macros: dict[str, str | int] = {"MR": tile.mr, "NV": tile.nv}
    suffix = ""
    if window.pixels == 1:
        macros["ONE_PIXEL"] = 1
        suffix = "_one"
    if segments > F32_SEGMENTS:
        macros["SEGMENTS"] = round_up(segments, F32_SEGMENTS)
        suffix += f"_s{macros['SEGMENTS']}"
    if dtype is DType.F16 and window.k > HALF_LONG:
        macros["LONG_SUMS"] = 1
        suffix += "_long"
    return macros, suffix

"""Lowers the convolution of a stem whose image is channels-first (conv/chw_conv.c)."""

from __future__ import annotations

import math

from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.sums import HALF_LONG
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.common.window import Window, bias_vector, window_of
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.epilogues import epilogue_of
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value
from edgekit.kb.targets.isa import LANE_REGISTERS, Tile

_TILE = Tile(8, 2)  # 16 sums, and registers for the vectors of a line and two rows of weights
_MOST_VECTORS = 6  # of a line, for the pixels of a tile


def line_width(ctx: Context, conv: Node) -> int | None:
    """The elements of a padded row of one channel; None if there is no kernel for the convolution.

    Windows that are far apart share few vectors of a line.
    """
    window, dtype = _window(ctx, conv), ctx.tensor(conv.outputs[0]).dtype
    isa = ctx.of_floats(dtype).isa
    step, taps = window.stride[1], window.kernel[1]
    vectors = math.ceil(((_TILE.mr - 1) * step + taps) / isa.vl)
    long = dtype is DType.F16 and window.k > HALF_LONG
    lanes = isa.lanes and isa.registers >= LANE_REGISTERS
    if not lanes or long or window.dilation != (1, 1) or vectors > _MOST_VECTORS:
        return None
    last = (window.y[2] - 1) // _TILE.mr * _TILE.mr * step  # first element of the last tile
    return round_up(max(last + vectors * isa.vl, window.padding.left + window.x[2]), isa.vl)


def _window(ctx: Context, conv: Node) -> Window:
    assert isinstance(conv.op, Conv2D)
    return window_of(conv.op, *map(ctx.tensor, (*conv.inputs[:2], conv.outputs[0])))


def lower_chw_conv(ctx: Context, node: Node) -> KernelCall:
    """A call whose image, and the length of its lines, the caller fills in; a task is a row."""
    window, dtype = _window(ctx, node), ctx.tensor(node.outputs[0]).dtype
    ctx = ctx.of_floats(dtype)
    oc, vl = window.y[3], ctx.isa.vl
    assert isinstance(node.op, Conv2D)
    taps = ctx.constant(node, 1, "weights").transpose(0, 1, 3, 2)  # a line after the other
    weights = pack_panels(taps.reshape(oc, -1).astype(dtype.numpy), _TILE.nv * vl, vl)
    function, called, epilogue = epilogue_of(ctx, node, oc)
    low, high = node.op.activation.bounds
    form = f"{window.kernel[1]}s{window.stride[1]}_{_TILE.mr}x{_TILE.nv * vl}"
    kernel = ctx.kernel(
        f"{dtype.value}_chw_conv_{form}{called}",
        "conv/chw_conv.c",
        "conv/f32_conv.h",
        "ek_f32_conv_args",
        MR=_TILE.mr,
        NV=_TILE.nv,
        TAPS=window.kernel[1],
        STEP=window.stride[1],
        **function,
    )
    fields: dict[str, Field] = {
        "win": window.fields,
        "weights": ctx.weights.add(weights),
        "bias": ctx.weights.add(bias_vector(ctx.optional(node, 2), round_up(oc, vl), dtype.numpy)),
        "y": Value(node.outputs[0]),
        "pitch": ctx.pitch(node.outputs[0]),
        "low": low,
        "high": high,
        **epilogue,
    }
    return KernelCall(kernel, fields, window.y[1])

"""Lowers chains of convolutions that run a few rows at a time (conv/chain.c)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.device.runtime.kernel_facts import CHAIN_BYTES
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import ALIGN, round_up
from edgekit.host.compiler.ir.chains import members_of
from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.window import Window, window_of
from edgekit.host.compiler.lowering.context import Context, UnsupportedFormError, lowers
from edgekit.host.compiler.lowering.conv.conv import lower_conv2d
from edgekit.host.compiler.lowering.conv.depthwise import lower_depthwise, rows_at_once
from edgekit.host.compiler.lowering.gemm.product_f32 import float_form
from edgekit.host.compiler.lowering.gemm.product_i8 import i8_tile
from edgekit.host.compiler.lowering.methods import method_of
from edgekit.host.compiler.lowering.plan import Field, KernelCall

_BETWEEN = 65536  # bytes of the depthwise result: larger ones are slower to read back
_STRIPS = 8  # minimum number of strips, if the image is tall enough, to share among threads
_TWICE = 16  # at most one row in so many may be computed twice
_LEAST_PIECES = 4  # minimum pieces for threads, even if more rows are computed twice
_CALLS = 0.1  # cost of a strip's calls, in rows
_BALANCED = 1.02  # longest share, relative to the best cut's, that is as good


@dataclass(frozen=True)
class RowStrips:
    """How a chain is cut: `rows` of the depthwise result per strip, `together` strips per piece;
    the first member's result starts at element `held` of the buffer."""

    rows: int
    held: int
    together: int = 1


def strips_of(
    ctx: Context, members: Sequence[Node], whole: bool = True, room: int = CHAIN_BYTES
) -> RowStrips | None:
    """Cuts a chain into strips; None if not even the smallest strip fits a buffer of `room` bytes.

    With `whole`, strips consist of complete register tiles of the methods for `ctx.threads`
    threads. The graph of `ctx` must contain the members' tensors.
    """
    at = next(i for i, n in enumerate(members) if isinstance(n.op, DepthwiseConv2D))
    window = _node_window(ctx, members[at])
    first, last = members[:at], members[at + 1 :]
    _, height, width, channels = window.x
    _, out_height, out_width, _ = window.y
    size = ctx.tensor(members[at].inputs[0]).dtype.bytes
    margin = 2 * _tile_rows(ctx, first[0]) if first else 0  # pixels: tiles may overlap both ends
    step = _whole_tiles(_tile_rows(ctx, last[0]), out_width) if last and whole else 1
    step = math.lcm(
        step, rows_at_once(ctx, members[at], window, ctx.tensor(members[at].inputs[0]).dtype)
    )
    span = (window.kernel[0] - 1) * window.dilation[0] + 1
    fitting: list[RowStrips] = []
    for rows in range(step, max(out_height // _STRIPS, step) + 1, step):
        between = min(rows, out_height) * out_width * channels if last else 0
        behind = round_up(between * size, ALIGN) // size
        band = min(height, (rows - 1) * window.stride[0] + span) * width + margin
        need = behind + (band * channels if first else 0)
        if need * size > room or (fitting and between * size > _BETWEEN):
            break
        fitting.append(RowStrips(rows, behind))
    return _share_out(fitting, window, bool(first), ctx.threads) if fitting else None


def _share_out(cuts: Sequence[RowStrips], window: Window, repeats: bool, threads: int) -> RowStrips:
    """The cut that keeps the busiest of `threads` busy for the shortest time, from `cuts` with more
    and more rows; if it `repeats`, pieces start with rows that the one before computes, too."""
    if threads == 1:
        return dataclasses.replace(
            cuts[-1], together=_strips_per_piece(window, cuts[-1]) if repeats else 1
        )
    shared = max(_shared_rows(window), 0) / window.stride[0] if repeats else 0
    longest = {}
    for each in cuts:
        count = math.ceil(window.y[1] / each.rows)
        for together in range(1, math.ceil(count / threads) + 1 if repeats else 2):
            pieces = math.ceil(math.ceil(count / together) / threads)
            strips = min(pieces * together, count)
            longest[dataclasses.replace(each, together=together)] = (
                strips * (each.rows + _CALLS) + pieces * shared
            )
    good = _BALANCED * min(longest.values())
    return max((c for c in longest if longest[c] <= good), key=lambda c: (c.rows, -c.together))


def cut(ctx: Context, members: Sequence[Node]) -> tuple[Context, RowStrips] | None:
    """Cuts a chain and returns the context that lowers its members.

    Falls back to analytic methods if the tiles of knowledge base methods, which were measured on
    separate operators, do not fit the buffer.
    """
    for each in (ctx, ctx.by_rule):
        if strips := strips_of(each, members):
            return each, strips
    return None


def _node_window(ctx: Context, node: Node) -> Window:
    assert isinstance(node.op, Conv2D | DepthwiseConv2D)
    x, w, y = (ctx.tensor(name) for name in (*node.inputs[:2], node.outputs[0]))
    return window_of(node.op, x, w, y)


def _tile_rows(ctx: Context, node: Node) -> int:
    """Pixels per register tile of a pointwise member."""
    window = _node_window(ctx, node)
    data = ctx.constant(node, 1, "weights")
    if ctx.tensor(node.inputs[0]).dtype is DType.F32:
        method = method_of(ctx, node, float_form(node, window, data, DType.F32))
        assert method is not None and method.mr is not None
        return method.mr
    return i8_tile(ctx, node, window, data.reshape(data.shape[0], -1)).mr


def _whole_tiles(pixels: int, width: int) -> int:
    """The smallest number of image rows that is a multiple of the tile."""
    return pixels // math.gcd(pixels, width)


@lowers(ops.RowChain)
def lower_row_chain(ctx: Context, node: Node) -> list[KernelCall]:
    graph, members = members_of(ctx.graph, node)
    inner = dataclasses.replace(ctx, graph=graph, strips=True)
    # The chain was chosen with the tiles of one thread; those of several threads may be taller.
    inner, strips = cut(inner, members) or (inner, strips_of(inner, members, whole=False))
    if strips is None:
        raise UnsupportedFormError("a chain whose rows do not fit the kernel's buffer")
    dtype = ctx.tensor(node.inputs[0]).dtype
    kind = "f32" if dtype is DType.F32 else "i8"
    fields: dict[str, Field] = {"rows": strips.rows, "held": strips.held}
    macros: dict[str, str | int] = {
        "T": C_TYPES[dtype],
        "CHAIN": f"ek_{kind}_chain_args",
        "ARGS": f"ek_{kind}_conv_args",
    }
    if kind == "f32":
        macros["ADDS"] = 1
    parts = []
    place = "first"
    for i, member in enumerate(members):
        is_depthwise = isinstance(member.op, DepthwiseConv2D)
        (call,) = (lower_depthwise if is_depthwise else lower_conv2d)(inner, member)
        place = "depthwise" if is_depthwise else place
        own = dict(call.fields)
        if "panel_outer" in own:
            own["panel_outer"] = 0  # all channels of a pixel come before the next pixel
        if i > 0:
            own["x"] = None
        if i + 1 < len(members):
            own["y"] = None
        fields[place] = own
        kernel = dict(call.kernel.macros)
        macros[place.upper()] = call.kernel.symbol
        macros[f"{place.upper()}_ROWS"] = kernel.get("ROWS", "1") if is_depthwise else kernel["MR"]
        parts.append(call.kernel)
        place = "last" if is_depthwise else place
    short = [p.symbol.removeprefix("ek_").removesuffix(f"_{ctx.isa.simd}") for p in parts]
    name = f"chain_{'_'.join(short)}"
    kernel_of = ctx.kernel(name, "conv/chain.c", "conv/chain.h", str(macros["CHAIN"]), **macros)
    op = next(_node_window(inner, m) for m in members if isinstance(m.op, DepthwiseConv2D))
    count = math.ceil(op.y[1] / strips.rows)
    whole = dataclasses.replace(kernel_of, parts=tuple(parts))
    return [KernelCall(whole, fields, count, strips.together)]


def _shared_rows(window: Window) -> int:
    """Image rows that are read for a row of the result and the next."""
    return (window.kernel[0] - 1) * window.dilation[0] + 1 - window.stride[0]


def _strips_per_piece(window: Window, strips: RowStrips) -> int:
    """Strips per piece; at its start, a piece recomputes the rows that windows share."""
    wanted = math.ceil(_TWICE * max(_shared_rows(window), 0) / (strips.rows * window.stride[0]))
    return max(1, min(wanted, math.ceil(window.y[1] / strips.rows) // _LEAST_PIECES))

"""Lowers chains of convolutions that run a few rows, or part of them, at a time (conv/chain.c)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgekit.device.runtime.kernel_facts import CHAIN_BYTES, DEPTHWISE_TILE
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import ALIGN, round_up
from edgekit.host.compiler.ir.chains import members_of
from edgekit.host.compiler.ir.checks import FLOATS
from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.window import Window, window_of
from edgekit.host.compiler.lowering.context import Context, UnsupportedFormError, lowers
from edgekit.host.compiler.lowering.conv.conv import lower_conv2d
from edgekit.host.compiler.lowering.conv.depthwise import lower_depthwise, rows_at_once
from edgekit.host.compiler.lowering.gemm.product_f32 import float_form
from edgekit.host.compiler.lowering.gemm.product_i8 import i8_tile
from edgekit.host.compiler.lowering.methods import method_of
from edgekit.host.compiler.lowering.plan import Field, KernelCall
from edgekit.kb.targets.clusters import timed_core

_BETWEEN = 65536  # bytes of the depthwise result: larger ones are slower to read back
_STRIPS = 8  # minimum number of strips, if the image is tall enough, to share among threads
_TWICE = 16  # at most one row in so many may be computed twice
_LEAST_PIECES = 4  # minimum pieces for threads, even if more rows are computed twice
_CALLS = 0.1  # cost of a strip's calls, in rows
_BALANCED = 1.02  # longest share, relative to the best cut's, that is as good
_KEPT = 0.75  # part of a cache that holds what is between members
_MOST_WORK = 1.15  # of strips that have some of the columns, relative to the members'
_CALL = 1000  # multiply-adds that take as long as a call
_DEPTHWISE = 2  # multiply-adds of a product that take as long as one of a depthwise tap


@dataclass(frozen=True)
class RowStrips:
    """How a chain is cut: `rows` of the depthwise result per strip, or `columns` of these rows,
    `together` strips per piece; the first member's result starts at element `held` of the
    buffer."""

    rows: int
    held: int
    together: int = 1
    columns: int = 0  # 0: all

    def count(self, window: Window) -> int:
        """Strips of a depthwise convolution's result; with columns, those below each other
        follow each other."""
        across = math.ceil(window.y[2] / self.columns) if self.columns else 1
        return across * math.ceil(window.y[1] / self.rows)


def strips_of(
    ctx: Context, members: Sequence[Node], whole: bool = True, room: int = CHAIN_BYTES
) -> RowStrips | None:
    """Cuts a chain into strips; None if not even the smallest strip fits a buffer of `room` bytes.

    With `whole`, strips of all columns consist of complete register tiles of the methods for
    `ctx.threads` threads, and stay in the caches of a known core. The graph of `ctx` must contain
    the members' tensors.
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
    near, far = _kept_bytes(ctx)
    most = min(room, far) if last and whole else room
    fitting: list[RowStrips] = []
    for rows in range(step, max(out_height // _STRIPS, step) + 1, step):
        between = min(rows, out_height) * out_width * channels if last else 0
        behind = round_up(between * size, ALIGN) // size
        band = min(height, (rows - 1) * window.stride[0] + span) * width + margin
        need = behind + (band * channels if first else 0)
        if need * size > most or (fitting and between * size > _BETWEEN):
            break
        fitting.append(RowStrips(rows, behind))
    columns, found = _Columns(ctx, members, at, size), None
    if last and whole and need * size > near:
        # One thread reads a depthwise result alone back from L2 in less time than cut columns cost.
        if first or not fitting or ctx.threads > 1:
            found = columns.best(min(room, near))
        found = found or (None if fitting else columns.best(most))
    elif last and not whole and not fitting:
        found = columns.best(room, math.inf)
    if found is None and fitting:
        return _share_out(fitting, window, bool(first), ctx.threads)
    return found


def _kept_bytes(ctx: Context) -> tuple[float, float]:
    """Bytes between the members that stay in L1, and in a thread's part of L2; infinite if the
    core is unknown."""
    core = timed_core(ctx.board)
    if core is None:
        return math.inf, math.inf
    return _KEPT * core.l1d.bytes, _KEPT * core.l2.bytes / (1 if core.l2.per_core else ctx.threads)


class _Columns:
    """Cuts a chain into strips of some of the columns, so that what is between its members stays
    in L1: beyond it, an A72 spends a third of a chain's time on storing and reading it."""

    def __init__(self, ctx: Context, members: Sequence[Node], at: int, size: int) -> None:
        self._ctx, self._size = ctx, size
        self._window = _node_window(ctx, members[at])
        self._tiles = [_tile_rows(ctx, n) if n is not members[at] else 1 for n in members]
        self._first, self._last = members[:at], members[at + 1 :]
        dtype = ctx.tensor(members[at].inputs[0]).dtype
        self._step = rows_at_once(ctx, members[at], self._window, dtype)
        self._inputs = ctx.tensor(members[0].inputs[0]).shape[3]
        self._outputs = ctx.tensor(members[-1].outputs[0]).shape[3]

    def best(self, room: float, most: float = _MOST_WORK) -> RowStrips | None:
        """The cut with the least work; None if it is more than `most` times the members'."""
        _, height, width, _ = self._window.y
        found: dict[RowStrips, float] = {}
        for columns in self._widths(width):
            for rows in range(self._step, max(height // _STRIPS, self._step) + 1, self._step):
                held, need = self._elements(rows, columns)
                if need * self._size > room:
                    break
                for together in self._together(rows, columns):
                    cut = RowStrips(rows, held, together, columns)
                    found[cut] = self._work(cut)
        least = min(found, key=lambda c: found[c], default=None)
        return least if least is not None and found[least] <= most * self._least() else None

    def _widths(self, width: int) -> list[int]:
        """Equal parts of the width, and complete tiles."""
        tile = math.lcm(self._tiles[-1], DEPTHWISE_TILE)
        parts = {math.ceil(width / n) for n in range(1, width // DEPTHWISE_TILE + 1)}
        return sorted(parts | set(range(tile, width, tile)))

    def _elements(self, rows: int, columns: int) -> tuple[int, int]:
        """Where the first member's result begins in the buffer, and the elements of both."""
        channels = self._window.x[3]
        held = round_up(rows * columns * channels * self._size, ALIGN) // self._size
        high = (rows - 1) * self._window.stride[0] + self._span(0)
        return held, held + (high * self._wide(columns) * channels if self._first else 0)

    def _span(self, axis: int) -> int:
        return (self._window.kernel[axis] - 1) * self._window.dilation[axis] + 1

    def _wide(self, columns: int) -> int:
        return (columns - 1) * self._window.stride[1] + self._span(1)

    def _together(self, rows: int, columns: int) -> Iterable[int]:
        """Numbers of strips per piece: all that are below each other, or a part of them."""
        below = math.ceil(self._window.y[1] / rows)
        most = math.ceil(RowStrips(rows, 0, 1, columns).count(self._window) / _LEAST_PIECES)
        parts = range(1, min(below, 2 * self._ctx.threads) + 1)
        return {min(math.ceil(below / n), most) for n in parts}

    def _work(self, cut: RowStrips) -> float:
        """Multiply-adds of the busiest thread, with those of cut tiles, of what is computed twice,
        and with what calls take."""
        width, stride = self._window.y[2], self._window.stride[0]
        across = math.ceil(width / cut.columns)
        widths = [*[cut.columns] * (across - 1), width - cut.columns * (across - 1)]
        above = [self._first_work(w) for w in widths] if self._first else [0.0]
        line = (stride * sum(above) + sum(map(self._row_work, widths))) / across
        again = max(self._span(0) - stride, 0) * max(above)
        count = cut.count(self._window)
        pieces = math.ceil(math.ceil(count / cut.together) / self._ctx.threads)
        strips = min(pieces * cut.together, count)
        return strips * (cut.rows * line + _CALL) + pieces * again

    def _row_work(self, columns: int) -> float:
        """Multiply-adds of a row of the depthwise convolution and the last member."""
        channels, tile = self._window.x[3], self._tiles[-1]
        taps = columns * math.prod(self._window.kernel) * channels * _DEPTHWISE
        return taps + math.ceil(columns / tile) * tile * channels * self._outputs + _CALL

    def _first_work(self, columns: int) -> float:
        """Multiply-adds of a row of the first member."""
        tile = self._tiles[0]
        pixels = math.ceil(self._wide(columns) / tile) * tile
        return pixels * self._window.x[3] * self._inputs + _CALL

    def _least(self) -> float:
        """Multiply-adds of a thread's equal share."""
        _, height, width, channels = self._window.y
        taps = math.prod(self._window.kernel) * _DEPTHWISE
        work = height * width * channels * (taps + self._outputs)
        if self._first:
            work += math.prod(self._window.x[1:]) * self._inputs
        return work / self._ctx.threads


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
    if (dtype := ctx.tensor(node.inputs[0]).dtype) in FLOATS:
        method = method_of(ctx.of_floats(dtype), node, float_form(node, window, data, dtype))
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
    kind = "f32" if dtype in FLOATS else "i8"
    fields: dict[str, Field] = {
        "rows": strips.rows,
        "columns": strips.columns,
        "held": strips.held,
    }
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
    if strips.columns:
        macros["COLUMNS"] = 1
        name += "_columns"
    kernel_of = ctx.of_floats(dtype).kernel(
        name, "conv/chain.c", "conv/chain.h", str(macros["CHAIN"]), **macros
    )
    op = next(_node_window(inner, m) for m in members if isinstance(m.op, DepthwiseConv2D))
    whole = dataclasses.replace(kernel_of, parts=tuple(parts))
    return [KernelCall(whole, fields, strips.count(op), strips.together)]


def _shared_rows(window: Window) -> int:
    """Image rows that are read for a row of the result and the next."""
    return (window.kernel[0] - 1) * window.dilation[0] + 1 - window.stride[0]


def _strips_per_piece(window: Window, strips: RowStrips) -> int:
    """Strips per piece; at its start, a piece recomputes the rows that windows share."""
    wanted = math.ceil(_TWICE * max(_shared_rows(window), 0) / (strips.rows * window.stride[0]))
    return max(1, min(wanted, math.ceil(window.y[1] / strips.rows) // _LEAST_PIECES))

"""Weights of later calls, which one of several threads prefetches while all of them multiply.

Cores that read from memory at the same time take turns, which halves its bandwidth, and layers of
few pixels wait for their weights although layers of many pixels left the memory idle. So the first
thread reads ahead in the weights file, which is in the order of the calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from edgekit.device.runtime.kernel_facts import READ_AHEAD_TOUCHED
from edgekit.host.compiler.costs.methods.rule import LINE
from edgekit.host.compiler.costs.sharing import PIECES, reached
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.prefetch import lines_ahead
from edgekit.host.compiler.lowering.plan import Field, KernelCall, LoopCall, Step, Weights
from edgekit.kb.targets.board import last_cache
from edgekit.kb.targets.clusters import makes_whole_products, timed_core
from edgekit.kb.targets.isa import ByteProduct, Tile

READ_AHEAD = "READ_AHEAD"  # a macro of conv/f32_conv.c and i8_conv.c, whose products prefetch
_WITHOUT = ("K_BLOCK", "NARROW")  # macros of kernels whose products do not
# The part of the last-level cache that weights may fill before they are used: with half of it,
# YOLO11n takes 1.02 of the time on four threads of an A76, because they evict what is used before.
_HELD = 4
_LEAST = 4096  # bytes worth prefetching
_BYTES_REACHED = 6.0  # products of bytes per cycle of a core out of order without dot products


def may_read_ahead(ctx: Context, pixels: int, macros: Mapping[str, object]) -> bool:
    """True if a float product is compiled to prefetch: on several cores out of order that multiply
    about as fast as they read, for weights that do not stay cached between runs."""
    slow = ctx.board.in_order or not makes_whole_products(ctx.board)
    return not slow and _reads(ctx, pixels) and not any(name in macros for name in _WITHOUT)


def bytes_read_ahead(ctx: Context, pixels: int, tile: Tile, macros: Mapping[str, object]) -> bool:
    """The same for a product of bytes that gemm/i8_out_of_order.h computes."""
    interleaved = ctx.isa.i8 is ByteProduct.MULL16 and ctx.isa.lanes and not ctx.board.in_order
    known = tile == Tile(4, 1) and "NARROW" in macros
    return interleaved and known and _reads(ctx, pixels)


def _reads(ctx: Context, pixels: int) -> bool:
    return ctx.threads > 1 and not ctx.strips and pixels > 1 and lines_ahead(ctx) > 0


@dataclass(frozen=True)
class _Reader:
    """A call that can prefetch: `start` and `stop` of its own weights in the file, the cycles that
    one core would take, and the bytes that the tasks of the first thread can prefetch."""

    start: int
    stop: int
    cycles: float
    most: int


def read_ahead(ctx: Context, steps: Iterable[Step]) -> list[Step]:
    """The steps, with the weights to prefetch in calls that multiply for longer than memory takes
    to read what is left of their own."""
    cursor, end, found = 0, ctx.weights.stored, []
    for step in steps:
        calls: list[KernelCall | LoopCall] = []
        for call in step.calls:
            reader = _reader(ctx, call)
            if isinstance(call, KernelCall) and reader is not None:
                unread = max(reader.stop - max(cursor, reader.start), 0)
                cursor = round_up(max(cursor, reader.stop), LINE)
                held = min(reader.stop + last_cache(ctx.board) // _HELD, end) - cursor
                size = min(_readable(ctx, reader.cycles) - unread, reader.most, held)
                if size >= _LEAST and cursor >= READ_AHEAD_TOUCHED:
                    size = size // LINE * LINE
                    fields: dict[str, Field] = {"ahead": Weights(cursor), "ahead_bytes": size}
                    call = replace(call, fields={**call.fields, **fields})
                    cursor += size
            calls.append(call)
        found.append(replace(step, calls=tuple(calls)))
    return found


def _readable(ctx: Context, cycles: float) -> int:
    """Bytes that memory delivers to several cores while they multiply."""
    core = timed_core(ctx.board)
    assert core is not None
    ns = cycles / ctx.threads / (core.clock_mhz * 1e-3)
    return int(ns / (LINE / core.dram.gb_s + core.dram.turn_ns) * LINE)


def _reader(ctx: Context, call: KernelCall | LoopCall) -> _Reader | None:
    if not isinstance(call, KernelCall) or call.tasks is None:
        return None
    weights = call.fields.get("weights")
    if READ_AHEAD not in dict(call.kernel.macros) or not isinstance(weights, Weights):
        return None
    size, cycles, each = (_of_bytes if "k_padded" in call.fields else _of_floats)(ctx, call)
    grain = max(call.grain, call.tasks // (ctx.threads * PIECES))
    tasks = math.ceil(call.tasks / grain) // ctx.threads * grain
    return _Reader(weights.offset, weights.offset + size, cycles, tasks * each)


def _of_floats(ctx: Context, call: KernelCall) -> tuple[int, float, int]:
    """The bytes of a product's weights, the cycles that one core would take, and the bytes that a
    task can prefetch."""
    core, macros = timed_core(ctx.board), dict(call.kernel.macros)
    assert core is not None
    pixels, c, oc, kh, kw = _sizes(call)
    half = call.kernel.symbol.startswith("ek_f16")
    isa, size = (ctx.isa.of_half, 2) if half else (ctx.isa, 4)
    k, vectors = kh * kw * c, math.ceil(oc / isa.vl)
    segments = 1 if call.fields["pointwise"] else kh if call.fields["row_segments"] else kh * kw
    groups = segments * (k // segments // isa.vl)
    lines = min(max(int(macros["MR"]) * int(macros["NV"]) // 8, 1), 3)  # F32_LINES_AHEAD
    cycles = pixels * k * vectors / reached(core.name, core.order == "in")
    return k * vectors * isa.vl * size, cycles, groups * lines * LINE


def _of_bytes(ctx: Context, call: KernelCall) -> tuple[int, float, int]:
    """The same for a product of bytes, which prefetches a line per step."""
    depth = call.fields["k_padded"]
    assert isinstance(depth, int)
    pixels, _, oc, _, _ = _sizes(call)
    size = depth * round_up(oc, ctx.isa.vl)
    return size, pixels * size / _BYTES_REACHED, depth // ctx.isa.k_step * LINE


def _sizes(call: KernelCall) -> tuple[int, int, int, int, int]:
    """Pixels of y, channels of x and y, and the window of a convolution."""
    window = call.fields["win"]
    assert isinstance(window, tuple)
    n, _, _, c, oh, ow, oc, kh, kw = (v for v in window[:9] if isinstance(v, int))
    return n * oh * ow, c, oc, kh, kw

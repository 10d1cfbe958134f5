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

READ_AHEAD = "READ_AHEAD"  # a macro of conv/f32_conv.c, whose products prefetch
_WITHOUT = ("K_BLOCK", "NARROW")  # macros of kernels whose products do not
# The part of the last-level cache that weights may fill before they are used: with half of it,
# YOLO11n takes 1.02 of the time on four threads of an A76, because they evict what is used before.
_HELD = 4
_LEAST = 4096  # bytes worth prefetching


def may_read_ahead(ctx: Context, pixels: int, macros: Mapping[str, object]) -> bool:
    """True if a float product is compiled to prefetch: on several cores out of order that multiply
    about as fast as they read, for weights that do not stay cached between runs."""
    slow = ctx.board.in_order or not makes_whole_products(ctx.board)
    if ctx.threads == 1 or ctx.strips or pixels == 1 or slow or not lines_ahead(ctx):
        return False
    return not any(name in macros for name in _WITHOUT)


@dataclass(frozen=True)
class _Reader:
    """A call that can prefetch: `start` and `stop` of its own weights in the file, its vector
    multiply-adds, and the bytes that the tasks of the first thread can prefetch."""

    start: int
    stop: int
    products: float
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
                size = min(_readable(ctx, reader.products) - unread, reader.most, held)
                if size >= _LEAST and cursor >= READ_AHEAD_TOUCHED:
                    size = size // LINE * LINE
                    fields: dict[str, Field] = {"ahead": Weights(cursor), "ahead_bytes": size}
                    call = replace(call, fields={**call.fields, **fields})
                    cursor += size
            calls.append(call)
        found.append(replace(step, calls=tuple(calls)))
    return found


def _readable(ctx: Context, products: float) -> int:
    """Bytes that memory delivers to several cores while they multiply."""
    core = timed_core(ctx.board)
    assert core is not None
    ns = products / ctx.threads / (reached(core.name, core.order == "in") * core.clock_mhz * 1e-3)
    return int(ns / (LINE / core.dram.gb_s + core.dram.turn_ns) * LINE)


def _reader(ctx: Context, call: KernelCall | LoopCall) -> _Reader | None:
    if not isinstance(call, KernelCall) or call.tasks is None:
        return None
    macros, fields = dict(call.kernel.macros), call.fields
    weights, window = fields.get("weights"), fields.get("win")
    if READ_AHEAD not in macros or not isinstance(weights, Weights):
        return None
    assert isinstance(window, tuple)
    n, _, _, c, oh, ow, oc, kh, kw = (v for v in window[:9] if isinstance(v, int))
    half = call.kernel.symbol.startswith("ek_f16")
    isa, size = (ctx.isa.of_half, 2) if half else (ctx.isa, 4)
    k, vectors = kh * kw * c, math.ceil(oc / isa.vl)
    segments = 1 if fields["pointwise"] else kh if fields["row_segments"] else kh * kw
    groups = segments * (k // segments // isa.vl)
    lines = min(max(int(macros["MR"]) * int(macros["NV"]) // 8, 1), 3)  # F32_LINES_AHEAD
    grain = max(call.grain, call.tasks // (ctx.threads * PIECES))
    tasks = math.ceil(call.tasks / grain) // ctx.threads * grain
    stop = weights.offset + k * vectors * isa.vl * size
    products = float(n * oh * ow * k * vectors)
    return _Reader(weights.offset, stop, products, tasks * groups * lines * LINE)

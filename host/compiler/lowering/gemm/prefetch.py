"""Prefetch distance of single-row products whose weights do not stay cached between runs."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.host.compiler.costs.methods.rule import LINE
from edgekit.host.compiler.ir.ops import Gather, GatherQuantized, OutlierFullyConnected
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.context import Context
from edgekit.kb.targets.board import last_cache
from edgekit.kb.targets.clusters import timed_core

# A core that computes as many times as long as it reads is helped by others that read in turn: in
# simulated time, 1.5 times gain 3% (4 bits on rpi3), 1.3 times lose 4% (on rk3566).
_SLOW = 1.4
AHEAD = "I8_PREFETCH_DISTANCE"  # a macro of gemm/i8_tile.h


def ahead_of(ctx: Context, alone: bool = False) -> Mapping[str, int]:
    """The macro AHEAD for a single-row product; empty for the default of gemm/i8_tile.h.

    If a run reads more weights than the last-level cache holds, all of them come from memory. A
    core gets most of its bandwidth with as many outstanding lines as it supports: fewer leave it
    idle, more stall its loads. With cached weights, prefetches only cost time on out-of-order
    cores; several threads share the memory bandwidth; and kernels of other architectures gained
    nothing. `alone`: one thread runs the product.
    """
    lines = lines_ahead(ctx)
    return {AHEAD: lines * LINE} if lines and (ctx.threads == 1 or alone) else {}


def lines_ahead(ctx: Context) -> int:
    """Lines to prefetch ahead when reading from memory; 0: none."""
    core = timed_core(ctx.board)
    far = bytes_per_run(ctx.graph) > last_cache(ctx.board)
    if core is None or ctx.board.arch != "aarch64" or not far:
        return 0
    return core.misses


def runs_alone(ctx: Context, cycles: float | None = None) -> bool:
    """True if one thread should run a memory-bound operator alone.

    One out-of-order core that prefetches gets as much bandwidth as all cores, which take turns. In
    simulated time, 90 products of one row with 256 x 64 floats take 0.72 of the time of four
    threads on rpi5 and 0.90 on rpi4; with 1024 x 1024, 0.60 and 0.54. In-order cores wait for their
    lines in parallel: 1.0 on rpi3, 2.0 on rk3566; unless `cycles`, those that one of them computes
    per line, are fewer than cores wait in turns, or than reads_in_turn gains by.
    """
    core = timed_core(ctx.board)
    if core is None or ctx.threads == 1 or not lines_ahead(ctx):
        return False
    own, shared = LINE / core.dram.core_gb_s, LINE / core.dram.gb_s + core.dram.turn_ns
    if core.order == "in":
        most = min(shared, _SLOW * own) if reads_in_turn(ctx) else shared
        return cycles is not None and max(own, cycles * 1000 / core.clock_mhz) <= most
    return own <= shared


def reads_in_turn(ctx: Context) -> bool:
    """True if threads of a product of one row should read weights one at a time, a few panels each,
    rather than ask the memory for single lines in alternation.

    In simulated time, a row times 2048 x 2048 on four threads: with 2 bits 0.81 of the time on
    rk3566 and rpi3, with 3 bits 0.73 and 0.79. One thread of a core out of order reads as fast.
    """
    core = timed_core(ctx.board)
    waits = core is not None and core.order == "in" and core.dram.turn_ns > 0
    return waits and ctx.threads > 1 and lines_ahead(ctx) > 0


def grain_of(ctx: Context, window: Window, tasks: int, grain: int = 1) -> int:
    """The grain of a product of `tasks` tasks, `grain` unless one thread should run all."""
    return tasks if window.pixels == 1 and runs_alone(ctx) else grain


def bytes_per_run(graph: Graph) -> int:
    """Bytes of constants read per run, as products store them; only single rows of lookup tables
    are read, so these are excluded."""
    sizes: dict[str, int] = {}
    for node in graph.nodes:
        packs = isinstance(node.op, OutlierFullyConnected)
        for name in node.inputs[1 if isinstance(node.op, Gather | GatherQuantized) else 0 :]:
            if name is not None and graph.tensors[name].data is not None:
                tensor = graph.tensors[name]
                sizes[name] = tensor.packed_bytes if packs else tensor.bytes
    return sum(sizes.values())

"""How far ahead products of one row prefetch weights that no cache keeps from run to run."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.host.compiler.ir.ops import Gather, GatherCodes
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.context import Context
from edgekit.kb.costs.rule import LINE
from edgekit.kb.targets.board import last_cache
from edgekit.kb.targets.clusters import timed_core

AHEAD = "I8_SOON"  # a macro of gemm/i8_tile.h


def ahead_of(ctx: Context) -> Mapping[str, int]:
    """The macro AHEAD for a product of one row, empty for what gemm/i8_tile.h does by itself.

    Where a run reads more weights than the last cache holds, each comes from memory, and a core
    gets most of it with as many lines on their way as it can have: fewer leave it idle, more make
    its loads wait. Where weights stay in a cache, prefetches only cost cores out of order time;
    several threads share what memory gives; and the kernels of other architectures gained nothing.
    """
    lines = lines_ahead(ctx)
    return {AHEAD: lines * LINE} if lines and ctx.threads == 1 else {}


def lines_ahead(ctx: Context) -> int:
    """The lines to prefetch ahead of what is read from memory; 0: none."""
    core = timed_core(ctx.board)
    far = bytes_per_run(ctx.graph) > last_cache(ctx.board)
    if core is None or ctx.board.arch != "aarch64" or not far:
        return 0
    return core.misses


def runs_alone(ctx: Context) -> bool:
    """Whether an operator that memory bounds is left to one of several threads: one core out of
    order, reading ahead, gets as much as all of them, who take turns. By board time of 90 products
    of a row with 256 x 64 floats, rpi5: 0.72 of what four threads take, rpi4: 0.90; of a row with
    1024 x 1024, 0.60 and 0.54. Cores in order wait for their lines side by side: 1.0 on rpi3, 2.0
    on rk3566."""
    core = timed_core(ctx.board)
    if core is None or core.order == "in" or ctx.threads == 1 or not lines_ahead(ctx):
        return False
    return LINE / core.dram.core_gb_s <= LINE / core.dram.gb_s + core.dram.turn_ns


def bytes_per_run(graph: Graph) -> int:
    """Bytes of constants that a run of the graph reads; of tables it reads single rows."""
    names = {
        name
        for node in graph.nodes
        for name in node.inputs[1 if isinstance(node.op, Gather | GatherCodes) else 0 :]
        if name is not None
    }
    data = (graph.tensors[name].data for name in names)
    return sum(value.nbytes for value in data if value is not None)

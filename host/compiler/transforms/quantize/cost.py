"""Execution time of a graph on a board, as estimated by the compiler for its plan."""

from __future__ import annotations

from collections.abc import Callable

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import Target, run_pipeline
from edgekit.host.compiler.placement import placements
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.transforms.split import memory_limit
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

Cost = Callable[[Graph], float]


def cost_on(board: BoardProfile) -> Cost:
    """Return a function that estimates the microseconds of a graph on one thread of the board's
    fastest cluster, including quantize and dequantize steps; infinite if it does not fit the
    board's memory."""
    options = CompileOptions(threads=1)
    table, limit = table_of(board), memory_limit(board, options)

    def cost(graph: Graph) -> float:
        try:
            work = run_pipeline(
                graph, Target(board, options, limit, table, cache_folder() / "golden")
            )
            scheduled, plan = plan_of(work.graph, board, options, table=table, threads=1)
        except InputError:
            return float("inf")
        return placements(scheduled, plan, board, threads=1)[0].cost_us

    return cost

"""Schedule, then plan: what a graph needs of memory and of code generation."""

from __future__ import annotations

from edgekit.host.graph.types import Graph
from edgekit.host.lower.context import WeightsFile
from edgekit.host.lower.lower import lower
from edgekit.host.lower.plan import Plan
from edgekit.host.lower.units import assign_units
from edgekit.host.options import CompileOptions
from edgekit.host.schedule.cost import CostModel
from edgekit.host.schedule.schedule import schedule
from edgekit.host.schedule.types import Schedule
from edgekit.host.tables.gemm import table_of
from edgekit.kb.board import BoardProfile
from edgekit.kb.gemm_table import KnowledgeBase


def plan_of(
    graph: Graph,
    board: BoardProfile,
    options: CompileOptions,
    weights: WeightsFile | None = None,
    table: KnowledgeBase | None = None,
) -> tuple[Schedule, Plan]:
    """The order a graph will run in, and all that code generation needs of it; its constants go to
    the end of `weights`, if given, and its methods come from `table`, by default the board's."""
    model = CostModel.of(board)
    units = assign_units(graph, board, model.cost)
    scheduled = schedule(graph, board, options, units, model)
    subgraphs = [part.operators for part in scheduled.subgraphs]
    roomy = options.order != "memory" and options.memory_limit is None
    costs = {n.name: model.cost(scheduled.graph, n) for n in scheduled.graph.nodes}
    plan = lower(
        scheduled.graph,
        board,
        table_of(board) if table is None else table,
        subgraphs,
        scheduled.units,
        roomy,
        costs,
        weights,
    )
    return scheduled, plan

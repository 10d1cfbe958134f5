"""Schedules, then plans: determines the memory and the kernel calls of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.choice import Choice
from edgekit.host.compiler.lowering.context import Spending, WeightsFile
from edgekit.host.compiler.lowering.groups import NO_CHOICES
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.nna.units import assign_units
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.tables.orders import NO_ORDERS, Orders, orders_of
from edgekit.host.compiler.transforms.split import memory_limit
from edgekit.kb.targets.board import BoardProfile


def plan_of(
    graph: Graph,
    board: BoardProfile,
    options: CompileOptions,
    weights: WeightsFile | None = None,
    table: KnowledgeBase | None = None,
    threads: int | None = None,
    choices: Mapping[str, Choice] = NO_CHOICES,
) -> tuple[Schedule, Plan]:
    """Schedules and lowers a graph; returns its execution order and the input to code generation.

    Constants are appended to `weights`, if given. Methods come from `table`, by default the
    board's, for `threads` threads, by default the number in the options, or else 1. `choices` maps
    the names of operators whose method was chosen as a group to those decisions. Measured orders of
    the board take precedence, unless their arena is too large.
    """
    table, threads = table_of(board) if table is None else table, threads or options.threads or 1
    remembered = orders_of(board)
    job = (graph, board, options, weights, table, choices)
    scheduled, plan = _make_plan(*job, remembered, threads)
    need, limit = plan.memory.arena_bytes + plan.state_bytes, memory_limit(board, options)
    if not remembered or limit is None or need <= limit:
        return scheduled, plan
    scheduled, plan = _make_plan(*job, NO_ORDERS, threads)
    why = f"searched; the measured order needs an arena of {need} bytes, more than {limit}"
    parts = tuple(replace(part, why=why) for part in scheduled.subgraphs)
    return replace(scheduled, subgraphs=parts), plan


def spending_of(options: CompileOptions) -> Spending:
    """How much memory the weights of Winograd's transform may take."""
    if options.order == "memory":
        return "none"
    return "freely" if options.memory_limit is None else "little"


def _make_plan(
    graph: Graph,
    board: BoardProfile,
    options: CompileOptions,
    weights: WeightsFile | None,
    table: KnowledgeBase,
    choices: Mapping[str, Choice],
    remembered: Orders,
    threads: int,
) -> tuple[Schedule, Plan]:
    model = CostModel.of(board)
    units = assign_units(graph, board, model.cost)
    scheduled = schedule(graph, board, options, units, model, remembered=remembered)
    subgraphs = [part.operators for part in scheduled.subgraphs]
    roomy = options.order != "memory" and options.memory_limit is None
    costs = {n.name: model.cost(scheduled.graph, n) for n in scheduled.graph.nodes}
    plan = lower(
        scheduled.graph,
        board,
        table,
        subgraphs,
        scheduled.units,
        roomy,
        costs,
        weights,
        threads,
        choices,
        spending_of(options),
    )
    return scheduled, plan

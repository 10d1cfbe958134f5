"""Graph → the order it will run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgekit.host.graph.types import Graph
from edgekit.host.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.schedule.cost import operator_cost
from edgekit.host.schedule.dag import dag_of
from edgekit.host.schedule.parts import key_positions, subgraph_ends
from edgekit.host.schedule.types import Schedule, Subgraph
from edgekit.kb.board import CPU, BoardProfile


def schedule(
    graph: Graph,
    board: BoardProfile,
    options: CompileOptions = DEFAULT_OPTIONS,
    units: Mapping[str, str] | None = None,
) -> Schedule:
    """The order of a graph on a board, by subgraphs; `units` says where nodes run, else the CPU."""
    units = {n.name: CPU for n in graph.nodes} | dict(units or {})
    dag = dag_of(graph)
    keys = key_positions(graph, dag)
    names = [n.name for n in graph.nodes]
    costs = {n.name: operator_cost(graph, n, board, units[n.name]) for n in graph.nodes}
    parts, start = [], 0
    for end in subgraph_ends(len(names), keys):
        part = tuple(names[start:end])
        cost = sum(costs[name] for name in part)
        parts.append(Subgraph(part, None, 1, False, cost, cost))
        start = end
    objective = "memory" if options.order == "memory" else "time"
    return Schedule(
        graph=replace(graph, nodes=graph.nodes),
        key_nodes=tuple(names[k] for k in keys),
        subgraphs=tuple(parts),
        units=units,
        objective=objective,
        random_seed=options.random_seed,
        costs=costs,
    )

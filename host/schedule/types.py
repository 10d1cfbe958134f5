"""What the scheduler hands on: a graph in the order it will run, and why that order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.host.graph.types import Graph


@dataclass(frozen=True)
class Subgraph:
    """Part of a graph that runs before the next part starts.

    `operators` in the chosen order; `orders_total` is None where they were not counted;
    `exhaustive`: no order of it can be better. Costs are the cost model's, in microseconds, of
    the importer's order and of the chosen one.
    """

    operators: tuple[str, ...]
    orders_total: int | None
    orders_tried: int
    exhaustive: bool
    import_cost_us: float
    chosen_cost_us: float


@dataclass(frozen=True)
class Schedule:
    """`graph` has its nodes in the chosen order; `units` says where each runs, `costs` for how
    many microseconds by the cost model (both by node name).

    `key_nodes` lie on every path from the inputs to the outputs, in order.
    """

    graph: Graph
    key_nodes: tuple[str, ...]
    subgraphs: tuple[Subgraph, ...]
    units: Mapping[str, str]
    objective: str
    random_seed: int
    costs: Mapping[str, float] = field(default_factory=dict)

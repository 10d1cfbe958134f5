"""What the scheduler hands on: a graph in the order it will run, and why that order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.schedule.dag import Dag, dag_of


@dataclass(frozen=True)
class Subgraph:
    """Part of a graph that runs before the next part starts.

    `operators` in the chosen order; `orders_total` is None where they were not counted;
    `exhaustive`: no order of it can be better. Costs are the cost model's, in microseconds, of
    the importer's order and of the chosen one. `why` says where the order is from, and what speaks
    against one that was measured.
    """

    operators: tuple[str, ...]
    orders_total: int | None
    orders_tried: int
    exhaustive: bool
    import_cost_us: float
    chosen_cost_us: float
    why: str = "searched"


@dataclass(frozen=True)
class Schedule:
    """`graph` has its nodes in the chosen order; `units` says where each runs, `costs` for how
    many microseconds by the cost model (both by node name).

    `times` are when each starts and ends by that model, in microseconds from the first one's start.
    `key_nodes` lie on every path from the inputs to the outputs, in order.
    """

    graph: Graph
    key_nodes: tuple[str, ...]
    subgraphs: tuple[Subgraph, ...]
    units: Mapping[str, str]
    objective: str
    random_seed: int
    costs: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def makespan_us(self) -> float:
        """How long the whole takes by the cost model: subgraphs run one after the other."""
        return sum(part.chosen_cost_us for part in self.subgraphs)

    def queues(self) -> dict[str, tuple[str, ...]]:
        """What each unit that has work runs, in order."""
        found: dict[str, list[str]] = {}
        for node in self.graph.nodes:
            found.setdefault(self.units[node.name], []).append(node.name)
        return {unit: tuple(names) for unit, names in found.items()}

    def waits(self) -> dict[str, tuple[str, ...]]:
        """The nodes of other units that must be over before each node starts.

        Of each other unit only the last one is named: the queue holds all before it. What an
        earlier node of the same queue has waited for already is left out.
        """
        return waits_of(dag_of(self.graph), self.graph, self.units)


def waits_of(dag: Dag, graph: Graph, units: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The waits (see `Schedule.waits`) of nodes in running order with the unit of each."""
    waited: dict[str, dict[str, int]] = {}  # by unit: how far it has seen each other one
    found = {}
    for i, node in enumerate(graph.nodes):
        unit = units[node.name]
        last: dict[str, int] = {}
        for p in dag.before[i]:
            other = units[graph.nodes[p].name]
            if other != unit:
                last[other] = max(last.get(other, -1), p)
        seen = waited.setdefault(unit, {})
        new = {other: p for other, p in last.items() if p > seen.get(other, -1)}
        seen.update(new)
        found[node.name] = tuple(graph.nodes[p].name for p in sorted(new.values()))
    return found

"""The scheduler's result: a graph in execution order, and the reasons for the order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.schedule.dag import Dag, dag_of


@dataclass(frozen=True)
class Subgraph:
    """Part of a graph that finishes before the next part starts.

    `operators` are in the chosen order; `orders_total` is None if they were not counted;
    `exhaustive` means the order is proven optimal. Costs are in microseconds by the cost model, for
    the importer's order and for the chosen one. `why` states the source of the order, and why a
    measured one was rejected.
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
    """A scheduled graph with its nodes in the chosen order.

    `units` and `costs` map node names to the unit and to microseconds by the cost model. `times`
    are the start and end of each node by that model, in microseconds from the first start.
    `key_nodes` are on every path from the inputs to the outputs, in order.
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
        """Total time by the cost model; subgraphs run one after the other."""
        return sum(part.chosen_cost_us for part in self.subgraphs)

    def queues(self) -> dict[str, tuple[str, ...]]:
        """The nodes of each unit that has work, in order."""
        found: dict[str, list[str]] = {}
        for node in self.graph.nodes:
            found.setdefault(self.units[node.name], []).append(node.name)
        return {unit: tuple(names) for unit, names in found.items()}

    def waits(self) -> dict[str, tuple[str, ...]]:
        """The nodes of other units that must finish before each node starts.

        Only the last node of each other unit is listed, since its queue implies all earlier ones.
        Waits already satisfied by an earlier node of the same queue are omitted.
        """
        return waits_of(dag_of(self.graph), self.graph, self.units)


def waits_of(dag: Dag, graph: Graph, units: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The waits (see `Schedule.waits`) of nodes given in execution order with their units."""
    # Per unit: how far it has synchronized with each other unit
    waited: dict[str, dict[str, int]] = {}
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

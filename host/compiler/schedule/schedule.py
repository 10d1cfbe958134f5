"""Graph → the execution order and the unit of each operator."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.costs.model import NNA, CostModel
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.compiler.schedule.dag import Dag, dag_of, key_positions, subgraph_ends
from edgekit.host.compiler.schedule.memory import buffers_of, users_of
from edgekit.host.compiler.schedule.search import (
    USUAL,
    Effort,
    FoundOrder,
    Objective,
    find_order,
    given_order,
    keep_order,
)
from edgekit.host.compiler.schedule.timeline import Problem, simulate
from edgekit.host.compiler.schedule.types import Schedule, Subgraph
from edgekit.host.compiler.tables.orders import NO_ORDERS, OrderRow, Orders
from edgekit.kb.targets.board import CPU, BoardProfile

_DIGITS = 16  # of a hash
_PERCENT = 100.0


def part_key(graph: Graph, part: tuple[int, int]) -> str:
    """A hash of the structure of a part; `part` is (first node, end).

    Covers operators with attributes, shapes, types and data flow, but not names or constant values,
    so parts of different models may match.
    """
    numbers: dict[str, int] = {}
    outputs, lines = set(graph.outputs), []

    def reference(name: str | None) -> str:
        if name is None:
            return "-"
        t = graph.tensors[name]
        place = "constant" if t.data is not None else numbers.setdefault(name, len(numbers))
        return f"{place} {t.shape} {t.dtype.value}{' out' if name in outputs else ''}"

    for node in graph.nodes[slice(*part)]:
        read, made = ([*map(reference, names)] for names in (node.inputs, node.outputs))
        lines.append(f"{node.op!r} {read} -> {made}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def measured_order(
    problem: Problem, found: FoundOrder, row: OrderRow | None
) -> tuple[FoundOrder, str]:
    """Returns a row's order if it was measured against the order that the search finds now, else
    `found`; and the reason."""
    if row is None:
        return found, "searched"
    origin = f"{row.source} on {row.board}, {row.when}, kit {row.kit_version}"
    if row.searched != found.order or not _is_order(problem, row.order):
        return found, (
            f"searched; the search result has changed since the measurement ({origin}): "
            "measure again: edgekit lab tune model --orders 6"
        )
    gain = (1 - row.ratio) * _PERCENT
    why = f"measured: {gain:.1f}% faster than the searched order ({origin})"
    return given_order(problem, row.order, found), why


def _is_order(problem: Problem, order: tuple[int, ...]) -> bool:
    """True if every node occurs once, after all its predecessors."""
    if sorted(order) != list(range(problem.dag.size)):
        return False
    place = {node: i for i, node in enumerate(order)}
    return all(place[b] < place[n] for n in order for b in problem.dag.before[n])


# Units per microsecond: sums of rounded costs are exact, so equal costs compare equal
_GRID = 1024.0


def schedule(
    graph: Graph,
    board: BoardProfile,
    options: CompileOptions = DEFAULT_OPTIONS,
    units: Mapping[str, str] | None = None,
    model: CostModel | None = None,
    effort: Effort = USUAL,
    remembered: Orders = NO_ORDERS,
) -> Schedule:
    """Schedules a graph for a board, subgraph by subgraph.

    `units` names the nodes that run on a unit other than the cores; all others may run on any unit
    for which the cost model has costs. `model` defaults to the board's. Measured orders in
    `remembered` take precedence over the order of least estimated time.
    """
    model = model or CostModel.of(board)
    names = (*model.units, *((NNA,) if board.nna else ()))
    costs = _unit_costs(graph, model, names, units or {})
    dag = dag_of(graph)
    keys = key_positions(graph, dag)
    objective: Objective = "memory" if options.order == "memory" else "time"
    order: list[int] = []
    chosen: list[int] = []
    parts = []
    times: list[tuple[float, float]] = []
    now = 0.0
    ends = subgraph_ends(dag.size, keys) if dag.size else []  # all outputs may be constants
    users = users_of(graph)
    for start, end in itertools.pairwise((0, *ends)):
        entry = chosen[-1] if chosen else 0
        problem = _build_problem(graph, dag, (start, end), costs, model, entry, users)
        why = "searched"
        if options.order == "import":
            found, why = keep_order(problem), "the importer's"
        else:
            found = find_order(problem, objective, f"{options.random_seed} {start}", effort)
        if options.order == "search" and remembered:
            row = remembered.get(part_key(graph, (start, end)))
            found, why = measured_order(problem, found, row)
        order += [start + i for i in found.order]
        chosen += [found.units[i] for i in found.order]
        line = simulate(problem, found.order, found.units)
        times += [(now + line.starts[i], now + line.ends[i]) for i in found.order]
        now += line.makespan
        parts.append(_to_subgraph(graph, start, found, why))
    nodes = tuple(graph.nodes[i] for i in order)
    return Schedule(
        graph=replace(graph, nodes=nodes),
        key_nodes=tuple(graph.nodes[k].name for k in keys),
        subgraphs=tuple(parts),
        units={node.name: names[u] for node, u in zip(nodes, chosen, strict=True)},
        objective=objective,
        random_seed=options.random_seed,
        costs={graph.nodes[i].name: costs[i][u] for i, u in zip(order, chosen, strict=True)},
        times={node.name: each for node, each in zip(nodes, times, strict=True)},
    )


@dataclass(frozen=True)
class SubgraphRange:
    """A subgraph: position of its first node, node count, structure hash, and the first node's
    name."""

    start: int
    size: int
    key: str
    name: str

    def nodes(self, graph: Graph) -> tuple[Node, ...]:
        """Its nodes, in the order of `graph`."""
        return graph.nodes[self.start : self.start + self.size]

    def order(self, graph: Graph, place: Mapping[str, int]) -> tuple[int, ...]:
        """Its nodes in the order of `graph`, as positions in the order given by `place`."""
        return tuple(place[node.name] - self.start for node in self.nodes(graph))


def parts_of(graph: Graph, board: BoardProfile) -> tuple[SubgraphRange, ...]:
    """The subgraphs of a graph in the model's original order."""
    found: list[SubgraphRange] = []
    start = 0
    for part in schedule(graph, board, CompileOptions(order="import")).subgraphs:
        end = start + len(part.operators)
        key = part_key(graph, (start, end))
        found.append(SubgraphRange(start, end - start, key, graph.nodes[start].name))
        start = end
    return tuple(found)


def _unit_costs(
    graph: Graph, model: CostModel, names: Sequence[str], units: Mapping[str, str]
) -> list[tuple[float, ...]]:
    """Microseconds of each node on each unit; infinite where it cannot run."""
    found = []
    for node in graph.nodes:
        wanted = units.get(node.name, CPU)
        allowed = [name == wanted or (wanted == CPU and name in model.units) for name in names]
        row = [
            _round_to_grid(model.cost(graph, node, name)) if may else math.inf
            for name, may in zip(names, allowed, strict=True)
        ]
        if min(row) == math.inf:  # the caller assigned a unit that the model has no cost for
            row[names.index(wanted)] = _round_to_grid(model.cost(graph, node))
        found.append(tuple(row))
    return found


def _round_to_grid(cost: float) -> float:
    return cost if cost == math.inf else round(cost * _GRID) / _GRID


def _build_problem(
    graph: Graph,
    dag: Dag,
    part: tuple[int, int],
    costs: Sequence[tuple[float, ...]],
    model: CostModel,
    entry: int,
    users: Mapping[str, Sequence[int]],
) -> Problem:
    """The problem of one part: unit `entry` continues; others join once awake and after receiving
    inputs."""
    nodes = range(*part)
    speeds = model.units.values()
    handover, wake = (max(getattr(u, k) for u in speeds) for k in ("handover_us", "wake_us"))
    per_byte = max(unit.handover_kib_us for unit in speeds) / 1024
    joined = wake + handover + per_byte * _entry_bytes(graph, part)
    return Problem(
        dag=dag.part(nodes),
        costs=tuple(costs[i] for i in nodes),
        loads=tuple(_round_to_grid(model.load(graph, graph.nodes[i])) for i in nodes),
        handover=_round_to_grid(handover),
        moves=tuple(_round_to_grid(per_byte * _result_bytes(graph, graph.nodes[i])) for i in nodes),
        late=tuple(
            0.0 if unit == entry else _round_to_grid(joined) for unit in range(len(costs[part[0]]))
        ),
        arena=buffers_of(graph, *part, users),
    )


def _result_bytes(graph: Graph, node: Node) -> int:
    return sum(graph.tensors[t].bytes for t in node.outputs)


def _entry_bytes(graph: Graph, part: tuple[int, int]) -> int:
    """Bytes of computed tensors that a part reads but does not produce."""
    nodes = graph.nodes[slice(*part)]
    made = {t for node in nodes for t in node.outputs}
    read = {t for node in nodes for t in node.inputs if t is not None} - made
    return sum(graph.tensors[t].bytes for t in read if graph.tensors[t].data is None)


def _to_subgraph(graph: Graph, start: int, found: FoundOrder, why: str) -> Subgraph:
    return Subgraph(
        operators=tuple(graph.nodes[start + i].name for i in found.order),
        orders_total=found.total,
        orders_tried=found.tried,
        exhaustive=found.proved,
        import_cost_us=found.import_makespan,
        chosen_cost_us=found.makespan,
        why=why,
    )

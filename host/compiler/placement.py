"""Chooses a model's thread count and cluster by the cost model.

The single-thread cost of an operator comes from the cost model. With several threads, it is divided
as finely as its kernel allows: into the pieces of its calls, distributed as the pool does. Work
that does not divide stays, and so does memory time for data that exceeds the caches, up to the
combined bandwidth of all cores. Each shared call costs a handover: a flag that travels to the
workers' cores and back. Between inferences workers sleep: waking each costs `wake_us`, and the work
done before they arrive is done alone. A 20 µs model therefore runs on one thread. All constants are
in host/compiler/costs/sharing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from edgekit.device.runtime.agent.specs import BESIDE, PlacementSpec
from edgekit.host.compiler.costs.memory import MemoryUse
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.costs.sharing import (
    ALONE_WEIGHT,
    HANDOVER_CYCLES,
    INSIDE,
    LATE_US,
    PIECES,
    WORTH,
)
from edgekit.host.compiler.lowering.plan import KernelCall, LoopCall, Plan, Step
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import BoardCluster, cluster_named, clusters_of


@dataclass(frozen=True)
class _Work:
    """The work of one operator on a core.

    `us`: microseconds; `calls`: pieces of each call (0: not shared) and how often it runs; `far`:
    bytes read from or written to memory.
    """

    us: float
    calls: tuple[tuple[int, int], ...]
    far: float


def placements(
    schedule: Schedule,
    plan: Plan,
    board: BoardProfile,
    threads: int | None = None,
    cluster: str = "",
) -> tuple[PlacementSpec, ...]:
    """The best thread count for each cluster, fastest cluster first.

    If given, `threads` fixes the count, for clusters with enough cores, and `cluster` comes first.
    Empty on x86, where releases run on one thread by default, and on boards with an NNA.
    """
    if not (threads or cluster) and (board.arch == "x86_64" or board.nna):
        return ()
    clusters = [c for c in clusters_of(board) if (threads or 1) <= c.cores]
    found = [_best_placement(schedule, plan, board, each, threads) for each in clusters]
    found += _side_by_side(schedule, board, found, threads)
    first = _name_of(board, cluster) if cluster else ""
    if first and all(spec.cluster != first for spec in found):
        raise InputError(
            f"--cluster: expected one of {', '.join(spec.cluster for spec in found)} for the "
            f"schedule of this model, found '{cluster}'"
        )
    fastest = next((each.name for each in clusters), "")

    def key(spec: PlacementSpec) -> tuple[bool, float]:
        """Slower cores must gain as much as extra threads, as costs are imprecise."""
        worth = WORTH if spec.cluster == fastest else 1.0
        return spec.cluster != first, spec.cost_us * worth

    return tuple(sorted(found, key=key))


def check_placement(board: BoardProfile, threads: int | None, cluster: str) -> None:
    """Raises InputError if the board has no such cluster, or none with that many cores."""
    try:
        names = cluster.split(BESIDE) if cluster else ()
        asked = [cluster_named(board, name) for name in names] or clusters_of(board)
    except ValueError as error:
        raise InputError(str(error)) from None
    most = len(names) if len(names) > 1 else max(each.cores for each in asked)
    if threads and threads > most:
        raise InputError(
            f"--threads: expected at most {most}, the cores of "
            f"{cluster or 'the largest cluster'} of {board.name}, found {threads}"
        )


def _name_of(board: BoardProfile, asked: str) -> str:
    return BESIDE.join(cluster_named(board, name).name for name in asked.split(BESIDE))


def _side_by_side(
    schedule: Schedule,
    board: BoardProfile,
    alone: Sequence[PlacementSpec],
    threads: int | None,
) -> list[PlacementSpec]:
    """One thread on each cluster with scheduled operators, if there are several such clusters."""
    used = [c for c in clusters_of(board) if c.unit in schedule.units.values()]
    if len(used) < 2 or threads not in (None, len(used)):
        return []
    name = BESIDE.join(cluster.name for cluster in used)
    one = min(spec.alone_us for spec in alone)
    early = _early_fraction(one)
    wake = max(unit.wake_us for unit in board.compute)
    cost = early * one + (1 - early) * schedule.makespan_us + wake * (len(used) - 1)
    return [PlacementSpec(name, "", len(used), round(cost, 1), one)]


def _early_fraction(alone: float) -> float:
    """The fraction of an inference that is finished before sleeping threads have arrived."""
    return min(LATE_US / alone, 1.0) if alone else 1.0


def explained(specs: Iterable[PlacementSpec]) -> list[dict[str, object]]:
    """The entries for --explain, the chosen one first."""
    return [asdict(spec) for spec in specs]


def operator_costs(
    schedule: Schedule, plan: Plan, board: BoardProfile, specs: Sequence[PlacementSpec]
) -> dict[str, float]:
    """Microseconds of each operator on one core of the release's cluster, the first of `specs`.

    These add up to the single-thread cost in `specs`. Without such a cluster, costs are those of
    the scheduled units. Operators without calls cost 0.
    """
    called = {step.name for step in plan.lowered.steps}
    costs = {name: us if name in called else 0.0 for name, us in schedule.costs.items()}
    cluster = next((c for c in clusters_of(board) if specs and c.name == specs[0].cluster), None)
    if cluster is None:
        return costs
    return costs | {n: work.us for n, work in _cluster_work(schedule, plan, board, cluster).items()}


def _best_placement(
    schedule: Schedule,
    plan: Plan,
    board: BoardProfile,
    cluster: BoardCluster,
    threads: int | None,
) -> PlacementSpec:
    """Uses `threads` threads, or the smallest count that no larger one clearly beats."""
    model = CostModel.of(board)
    works = _cluster_work(schedule, plan, board, cluster).values()
    name = _unit_of(model, cluster)
    unit, core = model.units[name], model.core(name)
    handover = HANDOVER_CYCLES / (core.clock_mhz if core else unit.clock_mhz)
    memory = model.memory_of(schedule.graph, name)
    costs = {
        count: _inference_us(works, count, handover, unit.wake_us, memory)
        for count in range(1, cluster.cores + 1)
    }
    chosen = threads or 1
    for count, cost in costs.items():
        if not threads and cost < WORTH * costs[chosen]:
            chosen = count
    return PlacementSpec(
        cluster.name, cluster.core, chosen, round(costs[chosen], 1), round(costs[1], 1)
    )


def _unit_of(model: CostModel, cluster: BoardCluster) -> str:
    """The cost model's unit for the cores of a cluster."""
    return cluster.unit if cluster.unit in model.units else next(iter(model.units))


def _cluster_work(
    schedule: Schedule, plan: Plan, board: BoardProfile, cluster: BoardCluster
) -> dict[str, _Work]:
    """The work of each operator with calls on a cluster, by name."""
    steps: Mapping[str, Step] = {step.name: step for step in plan.lowered.steps}
    model, works = CostModel.of(board), {}
    name = _unit_of(model, cluster)
    memory = model.memory_of(schedule.graph, name)
    for node in schedule.graph.nodes:
        step = steps.get(node.name)
        if step is None:
            continue
        us = model.cost(schedule.graph, node, name)
        if us == float("inf"):  # runs on an accelerator, which no thread shares
            us = schedule.costs[node.name]
        far = memory.far(model.work(schedule.graph, node).amounts)
        works[node.name] = _Work(us, tuple(_iter_calls(step.calls)), far)
    return works


def _iter_calls(
    calls: Iterable[KernelCall | LoopCall], times: int = 1
) -> Iterable[tuple[int, int]]:
    """Yields the pieces of each call, 0 if it is not shared, and how often it runs."""
    for call in calls:
        if isinstance(call, LoopCall):
            yield from _iter_calls(call.calls, times * call.steps)
        elif call.tasks is None:
            yield INSIDE, times
        else:
            pieces = -(-call.tasks // max(call.grain, 1))
            yield (pieces if pieces > 1 else 0), times


def _inference_us(
    works: Iterable[_Work], threads: int, handover: float, wake: float, memory: MemoryUse
) -> float:
    """Microseconds of an inference."""
    each = list(works)
    alone = sum(work.us for work in each)
    if threads == 1:
        return alone
    shared = sum(_operator_us(work, threads, handover, memory) for work in each)
    early = _early_fraction(alone)
    return early * alone + (1 - early) * shared + wake * (threads - 1)


def _operator_us(work: _Work, threads: int, handover: float, memory: MemoryUse) -> float:
    calls = [(pieces, times) for pieces, times in work.calls if times]
    flags = sum(times for pieces, times in calls if pieces)
    if not flags:
        return work.us
    parts = [
        (1.0 if pieces else ALONE_WEIGHT, _slowest_fraction(pieces, threads)) for pieces, _ in calls
    ]
    part = sum(weight * part for weight, part in parts) / sum(weight for weight, _ in parts)
    near = work.us - memory.us(work.far)
    return near * part + memory.us(work.far, threads) + handover * flags


def _slowest_fraction(pieces: int, threads: int) -> float:
    """The fraction of a call done by its slowest thread."""
    if pieces < 2:
        return 1.0
    count = min(pieces, threads * PIECES)
    return -(-count // threads) / count

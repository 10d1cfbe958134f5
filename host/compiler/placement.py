"""How many threads a model runs on, and on which cluster of a board, by the cost model.

The cost of an operator is the cost model's. On several threads it is divided as its kernel can
divide it: into as many pieces as its calls have, shared as the pool shares them; what does not
divide stays. Nor does the time in which memory brings what caches have no room for, beyond what all
cores together can read. Each call that is shared costs a hand-over, a flag that goes to the
workers' cores and back. Between inferences workers sleep: whoever wakes them spends `wake_us` on
each, and what is done before they came is done alone. So a model of 20 µs runs on one thread. The
figures of all this are in kb/costs/sharing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from edgekit.device.runtime.agent.specs import BESIDE, PlacementSpec
from edgekit.host.compiler.costs.memory import Memory
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.lowering.plan import Call, Loop, Plan, Step
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.errors import InputError
from edgekit.kb.costs.sharing import (
    ALONE_WEIGHT,
    HANDOVER_CYCLES,
    INSIDE,
    LATE_US,
    PIECES,
    WORTH,
)
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import BoardCluster, cluster_named, clusters_of


@dataclass(frozen=True)
class _Work:
    """What one operator takes on a core: microseconds, the calls' pieces (0: not shared) and how
    often each is called, and bytes that come from memory or go there."""

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
    """The best number of threads on each cluster, the fastest cluster first; or what a user asks
    for: so many `threads`, where a cluster has as many cores, and `cluster` first.

    None on x86, whose releases run on one thread unless told, and beside an NNA.
    """
    if not (threads or cluster) and (board.arch == "x86_64" or board.nna):
        return ()
    clusters = [c for c in clusters_of(board) if (threads or 1) <= c.cores]
    found = [_best(schedule, plan, board, each, threads) for each in clusters]
    found += _side_by_side(schedule, board, found, threads)
    first = _name_of(board, cluster) if cluster else ""
    if first and all(spec.cluster != first for spec in found):
        raise InputError(
            f"--cluster: expected one of {', '.join(spec.cluster for spec in found)}, as the "
            f"model's operators are scheduled, found '{cluster}'"
        )
    fastest = next((each.name for each in clusters), "")

    def key(spec: PlacementSpec) -> tuple[bool, float]:
        """Slower cores must gain as much as more threads: costs are not nearer than that."""
        worth = WORTH if spec.cluster == fastest else 1.0
        return spec.cluster != first, spec.cost_us * worth

    return tuple(sorted(found, key=key))


def check_placement(board: BoardProfile, threads: int | None, cluster: str) -> None:
    """InputError if the board has no such cluster, or none with as many cores."""
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
    """A thread on each cluster that the schedule gave operators to, if those are several."""
    used = [c for c in clusters_of(board) if c.unit in schedule.units.values()]
    if len(used) < 2 or threads not in (None, len(used)):
        return []
    name = BESIDE.join(cluster.name for cluster in used)
    one = min(spec.alone_us for spec in alone)
    early = _early(one)
    wake = max(unit.wake_us for unit in board.compute)
    cost = early * one + (1 - early) * schedule.makespan_us + wake * (len(used) - 1)
    return [PlacementSpec(name, "", len(used), round(cost, 1), one)]


def _early(alone: float) -> float:
    """The part of an inference that is over before threads that slept have come."""
    return min(LATE_US / alone, 1.0) if alone else 1.0


def explained(specs: Iterable[PlacementSpec]) -> list[dict[str, object]]:
    """What --explain says of them, the chosen one first."""
    return [asdict(spec) for spec in specs]


def operator_costs(
    schedule: Schedule, plan: Plan, board: BoardProfile, specs: Sequence[PlacementSpec]
) -> dict[str, float]:
    """Microseconds of each operator on one core of the cluster that a release runs on, the first of
    `specs`, which are of one thread together; without a cluster of its own on the unit that it is
    scheduled on. 0 where nothing is called."""
    called = {step.name for step in plan.lowered.steps}
    costs = {name: us if name in called else 0.0 for name, us in schedule.costs.items()}
    cluster = next((c for c in clusters_of(board) if specs and c.name == specs[0].cluster), None)
    if cluster is None:
        return costs
    return costs | {n: work.us for n, work in _works(schedule, plan, board, cluster).items()}


def _best(
    schedule: Schedule,
    plan: Plan,
    board: BoardProfile,
    cluster: BoardCluster,
    threads: int | None,
) -> PlacementSpec:
    """With so many threads, or the least number that more of them beat by little."""
    model = CostModel.of(board)
    works = _works(schedule, plan, board, cluster).values()
    name = _unit_of(model, cluster)
    unit, core = model.units[name], model.core(name)
    handover = HANDOVER_CYCLES / (core.clock_mhz if core else unit.clock_mhz)
    memory = model.memory_of(schedule.graph, name)
    costs = {
        count: _whole(works, count, handover, unit.wake_us, memory)
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
    """The name of a unit like the cores of a cluster."""
    return cluster.unit if cluster.unit in model.units else next(iter(model.units))


def _works(
    schedule: Schedule, plan: Plan, board: BoardProfile, cluster: BoardCluster
) -> dict[str, _Work]:
    """What the operators that are called take on a cluster, by name."""
    steps: Mapping[str, Step] = {step.name: step for step in plan.lowered.steps}
    model, works = CostModel.of(board), {}
    name = _unit_of(model, cluster)
    memory = model.memory_of(schedule.graph, name)
    for node in schedule.graph.nodes:
        step = steps.get(node.name)
        if step is None:
            continue
        us = model.cost(schedule.graph, node, name)
        if us == float("inf"):  # an accelerator's, which no thread shares
            us = schedule.costs[node.name]
        far = memory.far(model.work(schedule.graph, node).amounts)
        works[node.name] = _Work(us, tuple(_calls(step.calls)), far)
    return works


def _calls(calls: Iterable[Call | Loop], times: int = 1) -> Iterable[tuple[int, int]]:
    """The pieces of each call, 0 where it is not shared, and how often it is called."""
    for call in calls:
        if isinstance(call, Loop):
            yield from _calls(call.calls, times * call.steps)
        elif call.tasks is None:
            yield INSIDE, times
        else:
            pieces = -(-call.tasks // max(call.grain, 1))
            yield (pieces if pieces > 1 else 0), times


def _whole(
    works: Iterable[_Work], threads: int, handover: float, wake: float, memory: Memory
) -> float:
    """Microseconds of an inference."""
    each = list(works)
    alone = sum(work.us for work in each)
    if threads == 1:
        return alone
    shared = sum(_shared(work, threads, handover, memory) for work in each)
    early = _early(alone)
    return early * alone + (1 - early) * shared + wake * (threads - 1)


def _shared(work: _Work, threads: int, handover: float, memory: Memory) -> float:
    calls = [(pieces, times) for pieces, times in work.calls if times]
    flags = sum(times for pieces, times in calls if pieces)
    if not flags:
        return work.us
    parts = [(1.0 if pieces else ALONE_WEIGHT, _part(pieces, threads)) for pieces, _ in calls]
    part = sum(weight * part for weight, part in parts) / sum(weight for weight, _ in parts)
    near = work.us - memory.us(work.far)
    return near * part + memory.us(work.far, threads) + handover * flags


def _part(pieces: int, threads: int) -> float:
    """The part of a call that its slowest thread does."""
    if pieces < 2:
        return 1.0
    count = min(pieces, threads * PIECES)
    return -(-count // threads) / count

"""How many threads a model runs on, and on which cluster of a board: by price, before it ran.

The price of an operator is the cost model's. On several threads it is divided as its kernel can
divide it: into as many pieces as its calls have, shared as the pool shares them; what does not
divide stays. Each call that is shared costs a hand-over, a flag that goes to the workers' cores
and back. Between inferences workers sleep: whoever wakes them spends `wake_us` on each, and what
is done before they came, the first _LATE_US of an inference, is done alone. So a model of 20 µs
runs on one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from edgekit.device.agent.specs import BESIDE, PlacementSpec
from edgekit.host.errors import InputError
from edgekit.host.lower.plan import Call, Loop, Plan, Step
from edgekit.host.schedule.cost import CostModel
from edgekit.host.schedule.types import Schedule
from edgekit.kb.board import BoardProfile
from edgekit.kb.clusters import BoardCluster, cluster_named, clusters_of

_LATE_US = 50.0  # until a thread that slept runs on its core, on boards like these
_PIECES = 8  # of each thread's share: as in runtime/pool.c
_INSIDE = 16  # pieces of a kernel that shares its work itself
_WORTH = 0.95  # of the time with fewer threads, that one with more may take
_ASSUMED_MHZ = 1000.0  # the clock of a core of which profiles tell no speed


@dataclass(frozen=True)
class _Work:
    """What one operator takes on a core: microseconds, the calls' pieces (0: not shared) and how
    often each is called, and bytes of constants."""

    us: float
    calls: tuple[tuple[int, int], ...]
    loaded: float


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
    return tuple(sorted(found, key=lambda spec: (spec.cluster != first, spec.cost_us)))


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
    return min(_LATE_US / alone, 1.0) if alone else 1.0


def explained(specs: Iterable[PlacementSpec]) -> list[dict[str, object]]:
    """What --explain says of them, the chosen one first."""
    return [asdict(spec) for spec in specs]


def _best(
    schedule: Schedule,
    plan: Plan,
    board: BoardProfile,
    cluster: BoardCluster,
    threads: int | None,
) -> PlacementSpec:
    """With so many threads, or the least number that more of them beat by little."""
    model = CostModel.of(board)
    works = _works(schedule, plan, model, cluster)
    unit = model.units.get(cluster.unit) or next(iter(model.units.values()))
    streams = _streams(plan, cluster)
    costs = {
        count: _whole(works, count, unit.handover_us, unit.wake_us, streams)
        for count in range(1, cluster.cores + 1)
    }
    chosen = threads or 1
    for count, cost in costs.items():
        if not threads and cost < _WORTH * costs[chosen]:
            chosen = count
    return PlacementSpec(
        cluster.name, cluster.core, chosen, round(costs[chosen], 1), round(costs[1], 1)
    )


def _works(schedule: Schedule, plan: Plan, model: CostModel, cluster: BoardCluster) -> list[_Work]:
    steps: Mapping[str, Step] = {step.name: step for step in plan.lowered.steps}
    told = any(unit.name == cluster.unit for unit in model.board.compute)
    clock = cluster.timing.clock_mhz if cluster.timing and not told else _ASSUMED_MHZ
    name = cluster.unit if cluster.unit in model.units else next(iter(model.units))
    works = []
    for node in schedule.graph.nodes:
        step = steps.get(node.name)
        if step is None:
            continue
        work = model.work(schedule.graph, node)
        us = model.cost_of(work, name)
        if us == float("inf"):  # an accelerator's, which no thread shares
            us = schedule.costs[node.name]
        scale = 1.0 if model.measured else _ASSUMED_MHZ / clock
        works.append(_Work(us * scale, tuple(_calls(step.calls)), work.amounts.loaded))
    return works


def _calls(calls: Iterable[Call | Loop], times: int = 1) -> Iterable[tuple[int, int]]:
    """The pieces of each call, 0 where it is not shared, and how often it is called."""
    for call in calls:
        if isinstance(call, Loop):
            yield from _calls(call.calls, times * call.steps)
        elif call.tasks is None:
            yield _INSIDE, times
        else:
            pieces = -(-call.tasks // max(call.grain, 1))
            yield (pieces if pieces > 1 else 0), times


def _whole(
    works: Iterable[_Work], threads: int, handover: float, wake: float, streams: float
) -> float:
    """Microseconds of an inference."""
    each = list(works)
    alone = sum(max(work.us, work.loaded / streams if streams else 0.0) for work in each)
    if threads == 1:
        return alone
    shared = sum(_shared(work, threads, handover, streams) for work in each)
    early = _early(alone)
    return early * alone + (1 - early) * shared + wake * (threads - 1)


def _shared(work: _Work, threads: int, handover: float, streams: float) -> float:
    calls = [(pieces, times) for pieces, times in work.calls if times]
    if not calls:
        return work.us
    part = sum(_part(pieces, threads) for pieces, _ in calls) / len(calls)
    flags = sum(times for pieces, times in calls if pieces)
    us = work.us * part + 2 * handover * flags
    return max(us, work.loaded / streams) if streams else us


def _part(pieces: int, threads: int) -> float:
    """The part of a call that its slowest thread does."""
    if pieces < 2:
        return 1.0
    count = min(pieces, threads * _PIECES)
    return -(-count // threads) / count


def _streams(plan: Plan, cluster: BoardCluster) -> float:
    """Bytes of constants a microsecond from memory that all cores share; 0 where the model stays
    in the last cache, or nothing is known of it."""
    if cluster.timing is None:
        return 0.0
    core = cluster.timing.timed()
    last = core.l3.bytes if core.l3 else core.l2.bytes
    if len(plan.lowered.weights) + plan.memory.arena_bytes <= last:
        return 0.0
    return core.dram.gb_s * 1e3

"""How many threads a model runs on, and on which cluster of a board: by price, before it ran.

The price of an operator is the cost model's. On several threads it is divided as its kernel can
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
from edgekit.host.compiler.lowering.plan import Call, Loop, Plan, Step
from edgekit.host.compiler.schedule.cost import CostModel
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.errors import InputError
from edgekit.kb.costs.sharing import (
    ALONE_WEIGHT,
    FAR_PART,
    HANDOVER_CYCLES,
    INSIDE,
    LATE_US,
    PIECES,
    WORTH,
    reached,
)
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import BoardCluster, cluster_named, clusters_of

_ASSUMED_MHZ = 1000.0  # the clock of a core of which profiles tell no speed


@dataclass(frozen=True)
class _Work:
    """What one operator takes on a core: microseconds, the calls' pieces (0: not shared) and how
    often each is called, and bytes that come from memory or go there."""

    us: float
    calls: tuple[tuple[int, int], ...]
    far: float


@dataclass(frozen=True)
class _Memory:
    """What caches have no room for: the part of a model's constants and tensors, and the bytes in a
    microsecond that memory gives one core, and all; nothing is known where these are 0. A byte of
    tensors, half of which are written, takes as long as `tensors` bytes that are read."""

    beyond: float = 0.0
    own: float = 0.0
    shared: float = 0.0
    tensors: float = 1.0

    def us(self, far: float, threads: int = 1) -> float:
        """The microseconds of so many bytes."""
        return far / min(threads * self.own, self.shared) if self.own else 0.0


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
    return min(LATE_US / alone, 1.0) if alone else 1.0


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
    memory = _memory(plan, cluster)
    works = _works(schedule, plan, model, cluster, memory)
    unit = model.units.get(cluster.unit) or next(iter(model.units.values()))
    handover = HANDOVER_CYCLES / _clock(cluster)
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


def _clock(cluster: BoardCluster) -> float:
    return cluster.timing.clock_mhz if cluster.timing else _ASSUMED_MHZ


def _scale(model: CostModel, cluster: BoardCluster) -> float:
    """What the cost model's microseconds are multiplied by: where it was told no speed of a core,
    they are of a core of 1 GHz that does a vector operation a cycle."""
    if model.measured or any(unit.name == cluster.unit for unit in model.board.compute):
        return 1.0
    core = cluster.timing.core if cluster.timing else model.board.core.rpartition("-")[2]
    return _ASSUMED_MHZ / _clock(cluster) / reached(core, model.board.in_order)


def _works(
    schedule: Schedule, plan: Plan, model: CostModel, cluster: BoardCluster, memory: _Memory
) -> list[_Work]:
    steps: Mapping[str, Step] = {step.name: step for step in plan.lowered.steps}
    name = cluster.unit if cluster.unit in model.units else next(iter(model.units))
    scale, works = _scale(model, cluster), []
    for node in schedule.graph.nodes:
        step = steps.get(node.name)
        if step is None:
            continue
        work = model.work(schedule.graph, node)
        us = model.cost_of(work, name)
        if us == float("inf"):  # an accelerator's, which no thread shares
            us = schedule.costs[node.name]
        tensors = FAR_PART * memory.tensors * work.amounts.moved
        far = memory.beyond * (work.amounts.loaded + tensors)
        us = max(us * scale, memory.us(far))
        works.append(_Work(us, tuple(_calls(step.calls)), far))
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
    works: Iterable[_Work], threads: int, handover: float, wake: float, memory: _Memory
) -> float:
    """Microseconds of an inference."""
    each = list(works)
    alone = sum(work.us for work in each)
    if threads == 1:
        return alone
    shared = sum(_shared(work, threads, handover, memory) for work in each)
    early = _early(alone)
    return early * alone + (1 - early) * shared + wake * (threads - 1)


def _shared(work: _Work, threads: int, handover: float, memory: _Memory) -> float:
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


def _memory(plan: Plan, cluster: BoardCluster) -> _Memory:
    if cluster.timing is None:
        return _Memory()
    core = cluster.timing.timed()
    last = core.l3.bytes if core.l3 else core.l2.bytes
    bytes_used = len(plan.lowered.weights) + plan.memory.arena_bytes
    beyond = 1 - last / bytes_used if bytes_used > last else 0.0
    own, shared, write = core.dram.core_gb_s, core.dram.gb_s, core.dram.write_gb_s
    return _Memory(beyond, own * 1e3, shared * 1e3, (1 + shared / write) / 2 if write else 1.0)

"""Static memory plan: every tensor gets an offset in one arena at compile time."""

from __future__ import annotations

import itertools
import random
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from edgekit.host.compiler.ir.align import ALIGN, round_up
from edgekit.host.compiler.lowering.plan import MemoryPlan

_LOOKS = 400_000  # search budget in buffer comparisons, the same on every machine
_MOST_LOOKS = 2_000_000  # an attempt beyond it would take seconds and its table a GB
_SHUFFLE = 0.1  # fraction of the order by which an attempt may move a buffer at random


@dataclass(frozen=True)
class Lifetime:
    """Bytes needed from step `first` to step `last`, inclusive."""

    name: str
    bytes: int
    first: int
    last: int


def lifetimes(
    sizes: Mapping[str, int], uses: Sequence[Iterable[str]], held: Iterable[str] = ()
) -> list[Lifetime]:
    """The lifetimes of the buffers each step touches; `held` buffers live until the end."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, names in enumerate(uses):
        for name in names:
            first.setdefault(name, step)
            last[name] = step
    for name in held:
        if name in last:
            last[name] = len(uses) - 1
    return [Lifetime(n, round_up(sizes[n], ALIGN), first[n], last[n]) for n in first]


def plan_memory(buffers: Sequence[Lifetime], steps: int) -> MemoryPlan:
    """Assigns offsets so that buffers live at the same time do not overlap, in a small arena.

    Buffers are placed one by one at the lowest free offset, first by first use. Unless that reaches
    the lower bound or too many buffers overlap, a few fixed orders are tried; while none reaches
    the bound, buffers that end above it are placed earlier, for a fixed number of attempts. The
    result depends only on the arguments.
    """
    alive = _live_bytes(buffers, steps)
    bound = max(alive)
    best = _first_fit(buffers)
    if best.bytes > bound and _looks(buffers, steps) <= _MOST_LOOKS:
        best = _search(buffers, best, alive)
    names = [b.name for b in buffers]
    return MemoryPlan(dict(zip(names, best.offsets, strict=True)), best.bytes, bound)


def _search(buffers: Sequence[Lifetime], best: _Placed, alive: Sequence[int]) -> _Placed:
    """The smallest arena of several orders; `alive` are the live bytes at each step."""
    bound = max(alive)
    placer = _Placer(buffers)
    keys: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
        lambda b: (-b.bytes, b.first),
        lambda b: (b.first, -b.bytes),
        lambda b: (b.first - b.last, -b.bytes),
        lambda b: (-max(alive[b.first : b.last + 1]), -b.bytes, b.first),
        lambda b: (-b.bytes * (b.last - b.first + 1), b.first),
        lambda b: (-b.last, -b.bytes),
    )
    order: Sequence[int] = range(len(buffers))
    for key in keys:
        if best.bytes <= bound:
            break
        tried = sorted(range(len(buffers)), key=lambda i: (key(buffers[i]), buffers[i].name))
        found = placer.place(tried)
        if found.bytes < best.bytes:
            best, order = found, tried
    if best.bytes > bound:
        best = _improve_order(placer, order, best, bound)
    return best


def plan_apart(buffers: Sequence[Lifetime], shared: Collection[str], steps: int) -> MemoryPlan:
    """As `plan_memory`, but places the `shared` buffers in a separate area after all others."""
    own = plan_memory([b for b in buffers if b.name not in shared], steps)
    others = plan_memory([b for b in buffers if b.name in shared], steps)
    behind = {name: own.arena_bytes + at for name, at in others.offsets.items()}
    size = own.arena_bytes + others.arena_bytes
    return MemoryPlan({**own.offsets, **behind}, size, max(_live_bytes(buffers, steps)))


def _live_bytes(buffers: Sequence[Lifetime], steps: int) -> list[int]:
    """Live bytes at each step."""
    return _summed(buffers, [b.bytes for b in buffers], steps)


def _looks(buffers: Sequence[Lifetime], steps: int) -> int:
    """At least the number of comparisons of an attempt, without the table of overlaps."""
    count = _summed(buffers, [1] * len(buffers), steps)
    return sum(2 * count[b.first] for b in buffers)


def _summed(buffers: Sequence[Lifetime], values: Sequence[int], steps: int) -> list[int]:
    """The sum of the values of the buffers that live at each step."""
    change = [0] * (max(steps, 1) + 1)
    for b, value in zip(buffers, values, strict=True):
        change[b.first] += value
        change[b.last + 1] -= value
    return list(itertools.accumulate(change[:-1]))


@dataclass(frozen=True)
class _Placed:
    offsets: tuple[int, ...]
    bytes: int


def _first_fit(buffers: Sequence[Lifetime]) -> _Placed:
    """Places buffers by first use, without comparing them in pairs."""
    offsets, top = [0] * len(buffers), 0
    gaps = [(0, sum(b.bytes for b in buffers))]  # sorted; no two touch
    alive: list[tuple[int, int, int]] = []  # a heap: last step, start, end
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].first):
        while alive and alive[0][0] < buffers[i].first:
            _release(gaps, *heappop(alive)[1:])
        size = buffers[i].bytes
        if not size:
            continue
        place = next(n for n, (start, end) in enumerate(gaps) if end - start >= size)
        start, end = gaps[place]
        gaps[place : place + 1] = [(start + size, end)] if start + size < end else []
        heappush(alive, (buffers[i].last, start, start + size))
        offsets[i], top = start, max(top, start + size)
    return _Placed(tuple(offsets), top)


def _release(gaps: list[tuple[int, int]], start: int, end: int) -> None:
    """Adds a gap, joined with those that it touches."""
    after = before = bisect(gaps, (start, end))
    if before and gaps[before - 1][1] == start:
        before -= 1
        start = gaps[before][0]
    if after < len(gaps) and gaps[after][0] == end:
        end = gaps[after][1]
        after += 1
    gaps[before:after] = [(start, end)]


class _Placer:
    """Places buffers in any order; precomputes which ones overlap in time."""

    def __init__(self, buffers: Sequence[Lifetime]) -> None:
        self.sizes = [b.bytes for b in buffers]
        self._overlapping: list[list[int]] = [[] for _ in buffers]
        alive: list[int] = []
        for i in sorted(range(len(buffers)), key=lambda i: buffers[i].first):
            alive = [j for j in alive if buffers[j].last >= buffers[i].first]
            for j in alive:
                self._overlapping[i].append(j)
                self._overlapping[j].append(i)
            alive.append(i)
        self.looks = sum(map(len, self._overlapping)) + len(buffers)

    def place(self, order: Iterable[int]) -> _Placed:
        sizes = self.sizes
        offsets = [-1] * len(sizes)
        top = 0
        for i in order:
            taken = sorted(
                (offsets[j], offsets[j] + sizes[j]) for j in self._overlapping[i] if offsets[j] >= 0
            )
            at, size = 0, sizes[i]
            for start, end in taken:
                if start >= at + size:
                    break
                at = max(at, end)
            offsets[i] = at
            top = max(top, at + size)
        return _Placed(tuple(offsets), top)


def _improve_order(placer: _Placer, order: Sequence[int], best: _Placed, bound: int) -> _Placed:
    """Moves buffers that ended above the bound earlier, and some others at random."""
    chance = random.Random(0)
    count = len(order)
    rank = {i: float(place) for place, i in enumerate(order)}
    found = best
    for _ in range(_LOOKS // placer.looks + 1):
        for i, at in enumerate(found.offsets):
            if at + placer.sizes[i] > bound:
                rank[i] -= chance.uniform(0, count)
            elif chance.random() < _SHUFFLE:
                rank[i] += chance.uniform(-count, count) * _SHUFFLE
        order = sorted(rank, key=lambda i: rank[i])
        rank = {i: float(place) for place, i in enumerate(order)}
        found = placer.place(order)
        if found.bytes < best.bytes:
            best = found
            if best.bytes <= bound:
                break
    return best

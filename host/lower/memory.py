"""Static memory plan: every tensor gets an offset in one arena at compile time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.lower.context import ALIGN, round_up
from edgekit.host.lower.plan import MemoryPlan


@dataclass(frozen=True)
class Lifetime:
    """Bytes needed from step `first` to step `last`, both included."""

    name: str
    bytes: int
    first: int
    last: int


def lifetimes(
    sizes: Mapping[str, int], uses: Sequence[Iterable[str]], held: Iterable[str] = ()
) -> list[Lifetime]:
    """From the buffers each step touches; `held` ones live until the end."""
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
    """Offsets such that buffers alive together do not overlap.

    Largest first, each at the lowest free offset; a second try places in order of start, and
    the smaller arena wins. Both are deterministic.
    """
    alive = [0] * max(steps, 1)
    for b in buffers:
        for step in range(b.first, b.last + 1):
            alive[step] += b.bytes
    orders = (
        sorted(buffers, key=lambda b: (-b.bytes, b.first, b.name)),
        sorted(buffers, key=lambda b: (b.first, -b.bytes, b.name)),
        sorted(buffers, key=lambda b: (b.first - b.last, -b.bytes, b.name)),
    )
    plans = [_place(order) for order in orders]
    offsets, size = min(plans, key=lambda plan: plan[1])
    return MemoryPlan(offsets, size, max(alive))


def _place(order: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    placed: list[tuple[int, Lifetime]] = []
    size = 0
    for b in order:
        offset = 0
        # `placed` is sorted by offset: walk the gaps between neighbors that live at that time.
        for start, other in placed:
            if other.last < b.first or b.last < other.first:
                continue
            if start >= offset + b.bytes:
                break
            offset = max(offset, start + other.bytes)
        placed.append((offset, b))
        placed.sort(key=lambda entry: entry[0])
        size = max(size, offset + b.bytes)
    return {b.name: offset for offset, b in placed}, size

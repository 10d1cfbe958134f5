"""Steps in sections, one per subgraph; the queues of a section that several units share.

A section on one unit runs step by step, each step on all threads. On several units each has a queue
of its own (device/kernels/runtime/units.h), and a step waits for those of other queues that touch
the same memory: what it reads must be there, what it writes over must no longer be needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.lower.plan import Lowered, MemoryPlan, Section, Step, Value, Waiting, base_of
from edgekit.kb.board import CPU

Units = Mapping[str, str]  # by node; CPU where a node is not named


@dataclass(frozen=True)
class Span:
    """Steps [first, last) of one subgraph, and the unit of each."""

    first: int
    last: int
    units: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        """Whether several units work on it."""
        return len(set(self.units)) > 1


def spans_of(lowered: Lowered, subgraphs: Sequence[Sequence[str]], units: Units) -> list[Span]:
    """The steps by subgraph (of node names); what belongs to none stays with those before it."""
    of_node = {name: index for index, names in enumerate(subgraphs) for name in names}
    at, marks = 0, []
    for step in lowered.steps:
        at = of_node.get(step.name, at)
        marks.append(at)
    spans, first = [], 0
    for _, group in itertools.groupby(marks):
        last = first + len(list(group))
        steps = lowered.steps[first:last]
        # The order of reads and writes of a state is that of the model.
        alone = any(_touches_state(lowered, step) for step in steps)
        names = tuple(CPU if alone else units.get(step.name, CPU) for step in steps)
        spans.append(Span(first, last, names))
        first = last
    return spans


def _touches_state(lowered: Lowered, step: Step) -> bool:
    values = [v for call in step.calls for v in call.fields.values() if isinstance(v, Value)]
    return any(base_of(lowered.aliases, v.tensor).base in lowered.states for v in values)


def sections_of(lowered: Lowered, memory: MemoryPlan, spans: Sequence[Span]) -> tuple[Section, ...]:
    """Queues for every span; see the module's text."""
    return tuple(
        Section(
            span.first,
            span.last,
            _queues(lowered, memory, span) if span.is_shared else (),
        )
        for span in spans
    )


def _queues(lowered: Lowered, memory: MemoryPlan, span: Span) -> tuple[tuple[Waiting, ...], ...]:
    names = sorted(set(span.units), key=span.units.index)
    touched = [_Touched.of(lowered, memory, s) for s in lowered.steps[span.first : span.last]]
    queues: list[list[Waiting]] = [[] for _ in names]
    place: list[tuple[int, int]] = []  # (queue, how many steps of it are over after this one)
    for step, unit in enumerate(span.units):
        mine = names.index(unit)
        after = [0] * len(names)
        for earlier, (queue, over) in enumerate(place):
            if queue != mine and touched[step].needs(touched[earlier]):
                after[queue] = max(after[queue], over)
        queues[mine].append(Waiting(step, tuple(after)))
        place.append((mine, len(queues[mine])))
    return tuple(tuple(queue) for queue in queues)


_Region = tuple[str, int, int]  # memory, first byte, byte after the last


@dataclass(frozen=True)
class _Touched:
    """The memory that a step reads, and that it writes."""

    reads: tuple[_Region, ...]
    writes: tuple[_Region, ...]

    @classmethod
    def of(cls, lowered: Lowered, memory: MemoryPlan, step: Step) -> _Touched:
        def regions(names: Sequence[str]) -> tuple[_Region, ...]:
            return tuple(_region(lowered, memory, name) for name in names)

        return cls(regions(step.reads), regions((*step.writes, *step.scratch)))

    def needs(self, earlier: _Touched) -> bool:
        """Whether this step must not start before `earlier` is over."""
        return (
            _overlap(earlier.writes, self.reads)
            or _overlap(earlier.writes, self.writes)
            or _overlap(earlier.reads, self.writes)
        )


def _region(lowered: Lowered, memory: MemoryPlan, name: str) -> _Region:
    alias = base_of(lowered.aliases, name)
    size = lowered.sizes.get(name, lowered.sizes.get(alias.base, 0))
    if alias.base in memory.offsets:
        start = memory.offsets[alias.base] + alias.offset
        return ("arena", start, start + size)
    return (alias.base, alias.offset, alias.offset + size)


def _overlap(a: Sequence[_Region], b: Sequence[_Region]) -> bool:
    return any(x[0] == y[0] and x[1] < y[2] and y[1] < x[2] for x, y in itertools.product(a, b))

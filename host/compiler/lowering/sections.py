"""Groups steps into sections, one per subgraph, and builds the queues of multi-unit sections.

A section on one unit runs step by step, each step on all threads. With several units, each has its
own queue (device/kernels/runtime/units.h), and a step waits for steps of other queues that touch
the same memory: its inputs must be complete, and the memory it overwrites must be unused.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.lowering.plan import (
    Lowered,
    MemoryPlan,
    Section,
    Step,
    Waiting,
    base_of,
    tensors_of,
)
from edgekit.kb.targets.board import CPU

# Steps in schedule order that a unit may be ahead of the others. With 6, units of
# face_detection_full_range wait for each other; with 12, its arena grows by a fifth.
_AHEAD = 8

Units = Mapping[str, str]  # by node; CPU for nodes that are not listed


@dataclass(frozen=True)
class Span:
    """Steps [first, last) of one subgraph, and the unit of each."""

    first: int
    last: int
    units: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        """True if several units share it."""
        return len(set(self.units)) > 1


def spans_of(lowered: Lowered, subgraphs: Sequence[Sequence[str]], units: Units) -> list[Span]:
    """The steps by subgraph (of node names); steps in none join the preceding one."""
    of_node = {name: index for index, names in enumerate(subgraphs) for name in names}
    at, marks = 0, []
    for step in lowered.steps:
        at = of_node.get(step.name, at)
        marks.append(at)
    spans, first = [], 0
    for _, group in itertools.groupby(marks):
        last = first + len(list(group))
        names = tuple(units.get(step.name, CPU) for step in lowered.steps[first:last])
        spans.append(Span(first, last, names))
        first = last
    return spans


def sections_of(lowered: Lowered, memory: MemoryPlan, spans: Sequence[Span]) -> tuple[Section, ...]:
    """Builds the queues of every span; see the module docstring."""
    return tuple(_build_section(lowered, memory, span) for span in spans)


def side_by_side(lowered: Lowered, span: Span) -> list[tuple[int, ...]]:
    """For each step of a span, the steps that may run at the same time, itself included.

    Indices count from the span's first step.
    """
    count = span.last - span.first
    waits = _step_dependencies(span, _list_accesses(lowered, {}, span))
    before: list[set[int]] = []  # steps that are finished when each step starts
    for step in range(count):
        direct = {e for e in range(step) if span.units[e] == span.units[step]} | waits[step]
        before.append(direct.union(*(before[d] for d in direct)))
    return [
        tuple(o for o in range(count) if o not in before[step] and step not in before[o])
        for step in range(count)
    ]


def _build_section(lowered: Lowered, memory: MemoryPlan, span: Span) -> Section:
    if not span.is_shared:
        return Section(span.first, span.last)
    # The first queue is the caller's, which is pinned to the cluster that "cpu" denotes.
    names = sorted(set(span.units), key=lambda unit: (unit != CPU, span.units.index(unit)))
    waits = _step_dependencies(span, _list_accesses(lowered, memory.offsets, span))
    queues: list[list[Waiting]] = [[] for _ in names]
    place: list[tuple[int, int]] = []  # (queue, steps of it finished after this one)
    for step, unit in enumerate(span.units):
        after = [0] * len(names)
        for earlier in waits[step]:
            queue, over = place[earlier]
            after[queue] = max(after[queue], over)
        mine = names.index(unit)
        queues[mine].append(Waiting(step, tuple(after)))
        place.append((mine, len(queues[mine])))
    return Section(span.first, span.last, tuple(tuple(queue) for queue in queues))


def _step_dependencies(span: Span, touched: Sequence[_Touched]) -> list[set[int]]:
    """The steps of other queues that must finish before each step starts.

    This includes an artificial limit on how far one unit may run ahead, which bounds the memory:
    results of all steps that may run concurrently must be kept at once.
    """
    return [
        {
            earlier
            for earlier in range(step)
            if span.units[earlier] != span.units[step]
            and (earlier <= step - _AHEAD or touched[step].needs(touched[earlier]))
        }
        for step in range(len(touched))
    ]


def _list_accesses(lowered: Lowered, offsets: Mapping[str, int], span: Span) -> list[_Touched]:
    return [_Touched.of(lowered, offsets, step) for step in lowered.steps[span.first : span.last]]


_Region = tuple[str, int, int]  # memory, first byte, byte after the last


@dataclass(frozen=True)
class _Touched:
    """The memory that a step reads and writes."""

    reads: tuple[_Region, ...]
    writes: tuple[_Region, ...]

    @classmethod
    def of(cls, lowered: Lowered, offsets: Mapping[str, int], step: Step) -> _Touched:
        def regions(names: Sequence[str]) -> tuple[_Region, ...]:
            return tuple(_buffer_region(lowered, offsets, name) for name in names)

        values = tensors_of(step.calls)
        named = [base_of(lowered.aliases, value.tensor).base for value in values]
        # Accesses to a state keep the order of the model.
        states = [name for name in named if name in lowered.states]
        return cls(regions(step.reads), regions((*step.writes, *step.scratch, *states)))

    def needs(self, earlier: _Touched) -> bool:
        """True if this step must wait for `earlier`."""
        return (
            _overlap(earlier.writes, self.reads)
            or _overlap(earlier.writes, self.writes)
            or _overlap(earlier.reads, self.writes)
        )


def _buffer_region(lowered: Lowered, offsets: Mapping[str, int], name: str) -> _Region:
    """Buffers without an offset count as separate memory."""
    alias = base_of(lowered.aliases, name)
    if alias.base in lowered.states:
        return (alias.base, 0, lowered.states[alias.base].bytes)
    size = lowered.sizes.get(name, lowered.sizes.get(alias.base, 0))
    if alias.base in offsets:
        start = offsets[alias.base] + alias.offset
        return ("arena", start, start + size)
    return (alias.base, alias.offset, alias.offset + size)


def _overlap(a: Sequence[_Region], b: Sequence[_Region]) -> bool:
    return any(x[0] == y[0] and x[1] < y[2] and y[1] < x[2] for x, y in itertools.product(a, b))

"""The lowering's output and code generation's input: kernel calls over named buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from edgekit.host.common.content import Content
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.lowering.choice import CompiledProduct


@dataclass(frozen=True)
class Kernel:
    """One instance of a kernel file, identified by its compile-time parameters.

    `source` is relative to device/kernels. `args` is the C type of the arguments, declared in
    `header`, or in the source itself if it is not used elsewhere. `parts` are further C files that
    it calls.
    """

    symbol: str
    source: str
    header: str | None
    args: str
    macros: tuple[tuple[str, str], ...] = ()
    parts: tuple[Kernel, ...] = ()


@dataclass(frozen=True)
class Value:
    """The address of a tensor, temporary or state, plus an offset in bytes."""

    tensor: str
    offset: int = 0


@dataclass(frozen=True)
class Weights:
    """An address in the weights file."""

    offset: int


Scalar = int | float
Field = Scalar | Value | Weights | None | tuple["Field", ...] | Mapping[str, "Field"]


def values_of(field: Field) -> list[Value]:
    """The tensors referenced by a field of arguments, at any depth."""
    if isinstance(field, Value):
        return [field]
    if isinstance(field, Mapping):
        field = tuple(field.values())
    return [v for each in field for v in values_of(each)] if isinstance(field, tuple) else []


def replaced_values(field: Field, place: Callable[[Value], Field]) -> Field:
    """`field` with each tensor reference replaced by `place`."""
    if isinstance(field, Value):
        return place(field)
    if isinstance(field, Mapping):
        return {k: replaced_values(v, place) for k, v in field.items()}
    return tuple(replaced_values(v, place) for v in field) if isinstance(field, tuple) else field


@dataclass(frozen=True)
class KernelCall:
    """Runs `kernel` over `tasks` independent tasks; a thread gets at least `grain` of them.

    If `tasks` is None, the kernel is called once, with the pool, and distributes its own work.
    """

    kernel: Kernel
    fields: Mapping[str, Field]
    tasks: int | None
    grain: int = 1


@dataclass(frozen=True)
class Move:
    """Copies `bytes` from source to target; in step t of a loop, each is advanced by t times its
    pitch."""

    source: Value | Weights
    target: Value
    bytes: int
    source_pitch: int = 0
    target_pitch: int = 0


@dataclass(frozen=True)
class LoopCall:
    """Runs `calls` for `steps` steps, or while the byte `going` is nonzero.

    `begin` runs before the first step, `before` and `after` in each. `count` receives the number of
    steps run (s64). `cleared` lists tensors with a row of the given bytes per step; their rows
    after the last step are set to 0.
    """

    steps: int
    calls: tuple[KernelCall | LoopCall, ...]
    begin: tuple[Move, ...]
    before: tuple[Move, ...]
    after: tuple[Move, ...]
    going: Value | None = None
    count: Value | None = None
    cleared: tuple[tuple[Value, int], ...] = ()

    def values(self) -> list[Value]:
        """The tensors referenced by the loop itself."""
        moves = (*self.begin, *self.before, *self.after)
        ends = [v for m in moves for v in (m.source, m.target)]
        more = [self.going, self.count, *(v for v, _ in self.cleared)]
        return [v for v in (*ends, *more) if isinstance(v, Value)]


def calls_of(calls: Iterable[KernelCall | LoopCall]) -> list[KernelCall]:
    """All calls, including those inside loops."""
    return [
        c
        for each in calls
        for c in (calls_of(each.calls) if isinstance(each, LoopCall) else [each])
    ]


def tensors_of(calls: Iterable[KernelCall | LoopCall]) -> list[Value]:
    """The tensors referenced by calls and loops."""
    found: list[Value] = []
    for each in calls:
        if isinstance(each, LoopCall):
            found += [*each.values(), *tensors_of(each.calls)]
        else:
            found += [v for field in each.fields.values() for v in values_of(field)]
    return found


@dataclass(frozen=True)
class Step:
    """One operator at run time, covered by one timestamp.

    `kernel` names it in reports; `compiled` describes a multiplying operator's method.
    """

    name: str
    op: str
    kernel: str
    calls: tuple[KernelCall | LoopCall, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch: tuple[str, ...] = ()
    compiled: CompiledProduct | None = None


@dataclass(frozen=True)
class Alias:
    """A tensor that is part of another tensor's memory."""

    base: str
    offset: int = 0


def base_of(aliases: Mapping[str, Alias], name: str) -> Alias:
    """The buffer that holds a tensor, resolved through any chain of aliases."""
    found = Alias(name)
    while found.base in aliases:
        step = aliases[found.base]
        found = Alias(step.base, found.offset + step.offset)
    return found


@dataclass(frozen=True)
class StateSlot:
    """The location of a state in the state block, and its initial value."""

    offset: int
    bytes: int
    initial: Weights


@dataclass(frozen=True)
class KeptWeights:
    """Where the transformed weights of Winograd's transform are, in the file or made by each
    inference, and in how many parts they are used: all tiles of the image are multiplied by one
    part after the other."""

    kept: Literal["stored", "made"]
    parts: int


STORED = KeptWeights("stored", 1)  # parts would only transform the tiles again


@dataclass(frozen=True)
class Lowered:
    """A graph as kernel calls, before memory is placed.

    `output_buffers` names the buffer of each output, which is in the caller's memory.
    `transformed` has the convolutions by Winograd's transform.
    """

    name: str
    simd: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    output_buffers: tuple[str, ...]
    steps: tuple[Step, ...]
    sizes: Mapping[str, int]
    aliases: Mapping[str, Alias]
    states: Mapping[str, StateSlot]
    constants: Mapping[str, Weights]
    weights: Content
    transformed: Mapping[str, KeptWeights]


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in the arena; `lower_bound` is the maximum of live bytes at any step."""

    offsets: Mapping[str, int]
    arena_bytes: int
    lower_bound: int


@dataclass(frozen=True)
class Waiting:
    """A step of a section (counted from its first), and how many steps of each of the section's
    queues must finish before it starts."""

    step: int
    after: tuple[int, ...]


@dataclass(frozen=True)
class Section:
    """Steps [first, last), compiled together.

    `queues` has one queue per compute unit that shares the work, or none if a single unit does it
    all.
    """

    first: int
    last: int
    queues: tuple[tuple[Waiting, ...], ...] = ()


@dataclass(frozen=True)
class Plan:
    """A lowered graph with all memory placed: the input to code generation."""

    lowered: Lowered
    memory: MemoryPlan
    state_bytes: int
    sections: tuple[Section, ...]

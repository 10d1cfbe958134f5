"""ONNX loops as one operator (`ir/ops/loop.py`), so that code size is independent of the steps.

Counters are evaluated at import time: states that depend only on constants and themselves, and
conditions on them, are known for every step. They become constant rows, one per step, so that
values derived from a counter (a slice position, the end of the loop) have known bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.file import FileGraph, FileNode
from edgekit.host.compiler.frontends.onnx.types import Value, described
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, ShapeError, Tensor
from edgekit.host.errors import InputError

STEPS = 1 << 16  # steps of one loop
_WORK = 1 << 21  # operators over all steps; multiplied for nested loops
_KNOWN = 30_000  # operators evaluated to compute counters
_SMALL = 16  # elements of a state that may be a counter
_CARRIERS = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")


Body = Callable[[Sequence[Value | None]], Sequence[Value | None]]


class EndlessError(ShapeError):
    """The number of steps is unbounded."""


@dataclass(frozen=True, eq=False)
class LoopOperand:
    """The source of a body input: a state with its initial value, a row of a tensor [steps, ...],
    or a loop-invariant value."""

    kind: Literal["state", "row", "same"]
    value: Value | None


@dataclass(frozen=True, eq=False)
class LoopResult:
    """`count`: the number of steps run, [1] s64, None if all; the final states, in order; the row
    outputs of all steps."""

    count: Tensor | None
    states: list[Tensor]
    rows: list[Tensor]


def emit_rolled_loop(
    call: OnnxCall, body: Body, operands: Sequence[LoopOperand], steps: int, outputs: Sequence[int],
    first_row: int, going: Tensor | None,
) -> LoopResult:  # fmt: skip
    """Emits a loop around the nodes `body` emits for one step. Its results at `outputs` are the new
    states, and those from `first_row` on are the row outputs. `going`: the condition of the first
    step; the first result is then the condition of the next step.

    Raises `ShapeError` or `InputError` if the body is not the same in each step.
    """
    builder = call.builder
    if steps > STEPS:
        raise ShapeError(f"expected a loop of at most {STEPS} steps, found more")
    mark = builder.open_body(steps)
    inside: list[Tensor] = []
    try:
        given = [_body_input(call, o, inside) for o in operands]
        made = body(given)
        if any(not isinstance(t, Tensor) or call.bounded.holds(t) for t in made):
            raise ShapeError(
                "expected tensors of one shape in all steps, found a shape that changes"
            )
        outs = [t for t in made if isinstance(t, Tensor)]
        states = [outs[i] for i in outputs]
        starts = [o.value for o in operands if o.kind == "state"]
        for start, new in zip(starts, states, strict=True):
            if not isinstance(start, Tensor) or (start.shape, start.dtype) != (
                new.shape,
                new.dtype,
            ):
                raise ShapeError(
                    "expected states that keep their shape and type, found "
                    f"{new.dtype.value}{list(new.shape)} after a step"
                )
        again = [] if going is None else [call.reshape(outs[0], ())]
        graph, captured = builder.close_body(mark, inside, [*again, *states, *outs[first_row:]])
    except (ShapeError, InputError):
        builder.drop_body(mark, inside)
        raise
    tables = [o.value for o in operands if o.kind == "row"]
    if builder.repeats * steps * len(graph.nodes) > _WORK:
        raise InputError(f"expected loops of at most {_WORK} operators over all steps, found more")
    op = ops.Loop(steps, len(states), len(tables), going is not None, graph)
    ins = [going] if going is not None else []
    ins += [t for t in (*starts, *tables, *captured) if isinstance(t, Tensor)]
    results = builder.emit_all(op, ins)
    count = results.pop(0) if going is not None else None
    return LoopResult(count, results[: len(states)], results[len(states) :])


def _body_input(call: OnnxCall, operand: LoopOperand, inside: list[Tensor]) -> Value | None:
    """The body's input for an operand. `inside` is ordered as in `Loop`: states, then rows."""
    value = operand.value
    if operand.kind == "same":
        return value
    if not isinstance(value, Tensor):
        raise ShapeError(f"expected tensors as states of a loop, found {described(value)}")
    shape = value.shape if operand.kind == "state" else value.shape[1:]
    made = call.builder.input(call.builder.take(operand.kind), shape, value.dtype)
    if value.name in call.bfloat16:
        call.bfloat16.add(made.name)
    if operand.kind == "row" and value.data is not None and value.data.dtype.kind in "iuf":
        call.builder.limit(made, value.data.min().item(), value.data.max().item())
    states = sum(1 for t in inside if t.name.startswith("state"))
    inside.insert(states if operand.kind == "state" else len(inside), made)
    return made


def in_direction(call: OnnxCall, x: Tensor, back: bool) -> Tensor:
    """Rows [steps, ...], reversed if `back`."""
    if not back or x.shape[0] == 1:
        return x
    rest = len(x.shape) - 1
    begin, stride = (x.shape[0] - 1, *(0,) * rest), (-1, *(1,) * rest)
    return call.emit(ops.StridedSlice(begin, stride, x.shape, x.shape), x)


@dataclass(frozen=True, eq=False)
class Counted:
    """Facts about a loop known at import time: the maximum number of steps; `tables`: values of
    counters before each step and after the last, [steps + 1, ...]; `same`: loop-invariant states;
    `decided`: whether no computed condition can end the loop."""

    steps: int
    tables: Mapping[int, Array] = field(default_factory=dict)
    same: frozenset[int] = frozenset()
    decided: bool = False


def counted(
    call: OnnxCall, body: FileGraph, states: Sequence[Value | None], first: int, limit: int,
    may_end: bool,
) -> Counted:  # fmt: skip
    """Analyzes a loop; `first`: index of the first step; `limit`: maximum number of steps, before
    which data ends it if it `may_end`.

    Raises `EndlessError` if nothing bounds the steps of a loop with row outputs.
    """
    flow = _Flow(call, body)
    count = len(states)
    news = body.outputs[1 : count + 1]
    same = frozenset(i for i in range(count) if flow.origin(news[i]) == body.inputs[2 + i])
    known = {
        i for i, s in enumerate(states)
        if isinstance(s, Tensor) and s.data is not None and (i in same or s.elements <= _SMALL)
    }  # fmt: skip
    while True:
        closed = flow.closed({*body.inputs[:2], *(body.inputs[2 + i] for i in known)})
        lost = {i for i in known - same if news[i] not in closed}
        if not lost:
            break
        known -= lost
    counters = sorted(known - same)
    ends, zeros = flow.ends(body.outputs[0], closed)
    wanted = [*(news[i] for i in counters), *ends, *zeros]
    decided = body.outputs[0] in closed and not may_end
    nodes = flow.needed(wanted)
    most = min(limit, STEPS, _KNOWN // (len(nodes) + 1))
    if most < limit and not (counters or ends):
        most = min(limit, STEPS)
    small = FileGraph(body.inputs, tuple(wanted), body.constants, nodes)
    now = dict(enumerate(states))
    tables: dict[int, list[Array]] = {i: [_constant_data(now[i])] for i in counters}
    for step in range(most if counters or ends else 0):
        number, sure = (call.constant(np.array(v)) for v in (np.int64(first + step), True))
        made = call.run(small, [number, sure, *(now[i] if i in known else None for i in now)])
        values = [_constant_data(v) for v in made]
        if any(np.any(v != 0) for v in values[len(counters) + len(ends) :]):
            ends, decided = [], False
        for i, value, new in zip(counters, values, made, strict=False):
            tables[i].append(value)
            now[i] = new
        if not all(np.all(v) for v in values[len(counters) :][: len(ends)]):
            most = limit = step + 1
            break
    if limit > STEPS:
        limit = _most_steps(call, decided, len(body.outputs) > count + 1)
    if most < limit:  # too many steps to evaluate counters
        return Counted(limit, {}, same, decided and not ends)
    for values in tables.values():
        if len(kinds := {f"{v.dtype}{list(v.shape)}" for v in values}) > 1:
            raise ShapeError(
                "expected counters that keep their shape and type, found "
                f"{' and '.join(sorted(kinds))}"
            )
    return Counted(limit, {i: np.stack(v) for i, v in tables.items()}, same, decided)


def _most_steps(call: OnnxCall, decided: bool, collects: bool) -> int:
    """The bound of a loop that only data end; `collects`: it has row outputs, which need memory."""
    if decided:
        raise EndlessError(f"expected a loop of at most {STEPS} steps, found an unbounded one")
    if (most_rows := call.bounded.most_rows) is not None:
        return min(most_rows, STEPS)
    if collects:
        raise EndlessError(
            f"expected a loop of at most {STEPS} steps for any data, found an unbounded one; "
            "--max-rows N sets the largest"
        )
    call.builder.note(f"{call.node.shown}: at most {STEPS} steps; --max-rows N sets another bound")
    return STEPS


def _constant_data(value: Value | None) -> Array:
    if not isinstance(value, Tensor) or value.data is None:
        raise ShapeError("expected a constant, found a computed value")
    return value.data


class _Flow:
    """Data flow in a loop body."""

    def __init__(self, call: OnnxCall, body: FileGraph) -> None:
        self._call = call
        self._body = body
        self._makers: dict[str, FileNode] = {o: n for n in body.nodes for o in n.outputs if o}

    def origin(self, name: str) -> str:
        """The name that `name` is a copy of, looking through Identity nodes."""
        for _ in self._body.nodes:
            node = self._makers.get(name)
            if node is None or node.op != "Identity" or not node.inputs:
                break
            name = node.inputs[0]
        return name

    def closed(self, given: set[str]) -> set[str]:
        """All names that depend only on `given` and constants."""
        found = given | self._body.constants.keys()
        for node in self._body.nodes:
            plain = not any(isinstance(v, FileGraph) for v in node.attributes.values())
            if plain and all(self._is_computable(n, found) for n in node.inputs if n):
                found.update(n for n in node.outputs if n)
        return found

    def _is_computable(self, name: str, found: set[str]) -> bool:
        if name in found:
            return True
        if name in self._makers or name in self._body.inputs:
            return False
        value = self._call.outer(name)
        return isinstance(value, Tensor) and value.data is not None

    def ends(self, name: str, closed: set[str]) -> tuple[list[str], list[str]]:
        """Known conditions that must hold for `name` to be true, and numbers that must be 0 for
        that conclusion to be valid."""
        conditions, zeros = list[str](), list[str]()
        left, seen = [name], set[str]()
        while left:
            at = left.pop()
            if at in seen:
                continue
            seen.add(at)
            node = self._makers.get(at)
            if at in closed:
                conditions.append(at)
            elif node is not None and node.op == "And":
                left += node.inputs
            elif node is not None and node.op in _CARRIERS:
                left += node.inputs[:1]
            elif node is not None and node.op == "Add":
                known = [n for n in node.inputs if n in closed]
                zeros += known
                left += [n for n in node.inputs if n not in closed] if known else []
        return conditions, zeros

    def needed(self, names: Sequence[str]) -> tuple[FileNode, ...]:
        """The nodes that `names` depend on."""
        wanted, nodes = set(names), []
        for node in reversed(self._body.nodes):
            if wanted.intersection(node.outputs):
                nodes.append(node)
                wanted.update(node.inputs)
        return tuple(reversed(nodes))

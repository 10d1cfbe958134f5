"""Lowers loops to a C loop around the calls of the body; code size is independent of the steps.

    states start ─► │ row t ─► its buffer; calls of the body; kept ─► row t; new states ─► states │

The body's tensors share one temporary of the loop; its states live in the loop's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.memory import lifetimes, plan_memory
from edgekit.host.compiler.lowering.plan import (
    KernelCall,
    LoopCall,
    Move,
    Step,
    Value,
    Weights,
    base_of,
    replaced_values,
)

_ALONE = 1 << 16  # bytes of an operator's outputs below which several threads do not pay


def lower_loop(
    ctx: Context, node: Node, steps_of: Callable[[Context], Iterable[Step]]
) -> list[KernelCall | LoopCall]:
    op = node.op
    assert isinstance(op, ops.Loop)
    first = int(op.conditional)
    inner = Context(op.body, ctx.isa, ctx.board, ctx.table, ctx.threads, ctx.weights)
    steps = list(steps_of(inner))
    places = _input_addresses(ctx, node, op) | _place_body_tensors(ctx, node, op, inner, steps)

    def place(value: Value) -> Value | Weights:
        base = base_of(inner.aliases, value.tensor)
        within = base.offset + value.offset
        known = op.body.tensors.get(base.base)
        if known is not None and known.data is not None:
            return Weights(ctx.weights.add(known.data).offset + within)
        found = places[base.base]
        return Value(found.tensor, found.offset + within)

    made = [place(Value(name)) for name in op.body.outputs]
    states = [Value(name) for name in node.outputs[first : first + op.states]]
    going = ctx.scratch(node, 1) if op.conditional else None
    starts = [Value(name) for name in node.inputs if name is not None]
    targets = [*([going] if going else []), *states]
    names = [*([op.body.outputs[0]] if going else []), *op.body.inputs[: op.states]]
    sizes = [op.body.tensors[name].bytes for name in names]
    moves = zip(starts, targets, sizes, strict=False)
    begin = tuple(Move(a, b, size) for a, b, size in moves)
    rows = [
        Move(starts[first + op.states + i], places[name], size, source_pitch=size)
        for i, name in enumerate(op.body.inputs[op.states : op.states + op.rows])
        for size in (op.body.tensors[name].bytes,)
    ]
    kept, cleared = [], []
    for name, y in zip(op.body.outputs[first + op.states :], node.outputs[first + op.states :],
                       strict=True):  # fmt: skip
        size = op.body.tensors[name].bytes
        at = place(Value(name))
        kept.append(Move(at, Value(y), size, target_pitch=size))
        cleared.append((Value(y), size))
    ends = _state_moves(ctx, node, made[: first + op.states], targets, sizes)
    return [
        LoopCall(
            op.steps,
            tuple(
                _substitute_addresses(c, place)
                for step in steps
                for c in _restrict_threads(op, step)
            ),
            begin,
            tuple(rows),
            (*kept, *ends),
            going,
            Value(node.outputs[0]) if going else None,
            tuple(cleared) if going else (),
        )
    ]


def _input_addresses(ctx: Context, node: Node, op: ops.Loop) -> dict[str, Value]:
    """The addresses of the body's inputs."""
    first = int(op.conditional)
    places = {}
    for i, name in enumerate(op.body.inputs):
        if i < op.states:
            places[name] = Value(node.outputs[first + i])
        elif i < op.states + op.rows:
            places[name] = ctx.scratch(node, op.body.tensors[name].bytes)
        else:
            outer = node.inputs[first + i]
            assert outer is not None
            places[name] = Value(outer)
    return places


def _place_body_tensors(
    ctx: Context, node: Node, op: ops.Loop, inner: Context, steps: list[Step]
) -> dict[str, Value]:
    """The addresses of the body's computed tensors, within one temporary."""
    tensors = op.body.tensors
    sizes = {n: t.bytes for n, t in tensors.items() if t.data is None} | inner.scratch_bytes
    elsewhere = {*op.body.inputs, *(n for n, t in tensors.items() if t.data is not None)}
    uses = []
    for step in steps:
        names = (*step.reads, *step.writes, *step.scratch)
        bases = dict.fromkeys(base_of(inner.aliases, n).base for n in names)
        uses.append([b for b in bases if b not in elsewhere])
    held = {base_of(inner.aliases, n).base for n in op.body.outputs}
    plan = plan_memory(lifetimes(sizes, uses, held), len(uses))
    whole = ctx.scratch(node, max(plan.arena_bytes, 1))
    return {name: Value(whole.tensor, offset) for name, offset in plan.offsets.items()}


def _state_moves(
    ctx: Context, node: Node, made: list[Value | Weights], targets: list[Value], sizes: list[int]
) -> list[Move]:
    """Moves new states to their slots; copies of old states go through a temporary."""
    early, late = [], []
    old = {t.tensor for t in targets}
    for source, target, size in zip(made, targets, sizes, strict=True):
        if source == target:
            continue
        if isinstance(source, Value) and source.tensor in old:
            detour = ctx.scratch(node, size)
            early.append(Move(source, detour, size))
            source = detour
        late.append(Move(source, target, size))
    return [*early, *late]


def _restrict_threads(op: ops.Loop, step: Step) -> list[KernelCall | LoopCall]:
    """Restricts small calls to one thread, since waking others takes longer than the step."""
    tensors = op.body.tensors
    size = max((tensors[n].bytes for n in step.writes if n in tensors), default=0)
    return [
        replace(c, grain=max(c.grain, c.tasks))
        if isinstance(c, KernelCall) and c.tasks is not None and size < _ALONE
        else c
        for c in step.calls
    ]


def _substitute_addresses(
    call: KernelCall | LoopCall, place: Callable[[Value], Value | Weights]
) -> KernelCall | LoopCall:
    """`call` with the body's tensors replaced by their addresses."""
    if isinstance(call, KernelCall):
        return replace(call, fields={k: replaced_values(v, place) for k, v in call.fields.items()})

    def target(value: Value) -> Value:
        found = place(value)
        assert isinstance(found, Value)
        return found

    def moved(moves: tuple[Move, ...]) -> tuple[Move, ...]:
        return tuple(
            replace(
                m,
                source=place(m.source) if isinstance(m.source, Value) else m.source,
                target=target(m.target),
            )
            for m in moves
        )

    return replace(
        call,
        calls=tuple(_substitute_addresses(c, place) for c in call.calls),
        begin=moved(call.begin),
        before=moved(call.before),
        after=moved(call.after),
        going=None if call.going is None else target(call.going),
        count=None if call.count is None else target(call.count),
        cleared=tuple((target(v), size) for v, size in call.cleared),
    )

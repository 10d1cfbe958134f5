"""Import of ONNX loops and scans: rolled, or unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from edgekit.host.compiler.frontends.common.extent import extent
from edgekit.host.compiler.frontends.common.lengths import length_of
from edgekit.host.compiler.frontends.onnx.branch import scalar_condition, select_value
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.index import one_of
from edgekit.host.compiler.frontends.onnx.loop import (
    STEPS,
    Body,
    EndlessError,
    LoopOperand,
    counted,
    emit_rolled_loop,
    in_direction,
)
from edgekit.host.compiler.frontends.onnx.types import Value, described
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor
from edgekit.host.errors import InputError

_STEPS = 512  # unrolled steps of one loop
_ENDLESS = 1 << 62  # steps
_FEW = 16  # steps up to which a loop is always unrolled


@dataclass(eq=False)
class _Loop:
    """The progress of an unrolled loop: the states before each step and now, and the rows so far.

    From the first computed condition on, `flags` holds whether each step is active.
    """

    states: list[list[Value | None]]
    rows: list[list[Tensor]] = field(default_factory=list)
    flags: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Trips:
    """At most `most` steps; `count` is a computed trip count, [] s64."""

    most: int
    count: Tensor | None = None

    def allow(self, call: OnnxCall, going: Tensor | None, done: int | Tensor) -> Tensor | None:
        """`going`, and whether a computed count allows another step after `done` steps."""
        if self.count is None:
            return going
        at = call.constant(np.array(done, np.int64)) if isinstance(done, int) else done
        more = call.emit(ops.Less(), at, self.count)
        return more if going is None else call.emit(ops.And(), going, more)

    def limited(self, call: OnnxCall, body: Body) -> Body:
        """The body, whose condition ends the loop after a computed count."""

        def run(values: Sequence[Value | None]) -> Sequence[Value | None]:
            first, *rest = body(values)
            step = values[0]
            assert isinstance(step, Tensor)
            if not isinstance(first, Tensor):
                raise ShapeError(f"expected a condition, found {described(first)}")
            done = call.emit(ops.Add(), step, call.constant(np.array(1, np.int64)))
            return [self.allow(call, scalar_condition(call, first), done), *rest]

        return body if self.count is None else run


def loop(call: OnnxCall) -> list[Value | None]:
    """Emits a rolled loop if the body is the same in each step, else unrolls; short loops are
    always unrolled."""
    trips = _trip_count(call)
    limit = trips.most
    failed: ShapeError | InputError | None = None
    if limit > _FEW:
        begun = call.builder.begun
        try:
            made = _as_operator(call, trips)
            call.builder.resume(begun)
            return made
        except (ShapeError, InputError) as error:
            failed = error
    return _unroll_loop(call, trips, failed)


def _as_operator(call: OnnxCall, trips: _Trips) -> list[Value | None]:
    """Peels off the first step if the states only have their final shape after it."""
    body, least = call.graph("body"), len(call.values) - 1
    if len(body.inputs) < least + 1 or len(body.outputs) < least:
        has = f"{len(body.inputs)} and {len(body.outputs)}"
        raise ShapeError(f"expected a body of {least + 1} inputs and {least} outputs, found {has}")
    going = trips.allow(call, _first_condition(call), 0)
    if going is not None and going.data is not None:
        if not going.data:
            raise ShapeError("expected a loop of at least 1 step, found none")
        going = None
    states = list(call.values[2:])
    try:
        return _emit_loop(call, states, 0, trips, going, [])
    except (ShapeError, InputError) as error:
        if going is not None or isinstance(error, EndlessError):
            raise
        number = call.constant(np.array(0, np.int64))
        outs = call.run(body, [number, call.constant(np.array(True)), *states])
        again = scalar_condition(call, outs[0]) if isinstance(outs[0], Tensor) else None
        if again is None or (again.data is not None and not again.data):
            raise
        again = None if again.data is not None else again
        rows = [v for v in outs[len(states) + 1 :] if isinstance(v, Tensor)]
        return _emit_loop(call, list(outs[1 : len(states) + 1]), 1, trips, again, rows)


def _first_condition(call: OnnxCall) -> Tensor | None:
    return None if call.maybe(1) is None else scalar_condition(call, call.x(1))


def _emit_loop(
    call: OnnxCall, states: Sequence[Value | None], first: int, trips: _Trips,
    going: Tensor | None, rows: Sequence[Tensor],
) -> list[Value | None]:  # fmt: skip
    """`rows`: the outputs of a peeled first step."""
    body, run = call.graph("body"), trips.limited(call, partial(call.run, call.graph("body")))
    known = counted(call, body, states, first, trips.most - first, trips.count is not None)
    sure = call.constant(np.array(True))
    if going is None and not known.decided:
        going = sure
    call.builder.need_room((known.steps,), np.int64)
    numbers = call.constant(np.arange(first, first + known.steps, dtype=np.int64))
    operands = [LoopOperand("row", numbers), LoopOperand("same", sure)]
    for i, state in enumerate(states):
        if i in known.tables:
            operands.append(LoopOperand("row", call.constant(known.tables[i][:-1])))
        else:
            operands.append(LoopOperand("same" if i in known.same else "state", state))
    changing = [i for i, o in enumerate(operands[2:]) if o.kind == "state"]
    if not changing and len(body.outputs) == len(states) + 1:
        raise ShapeError("expected a loop that computes something, found none")
    outputs = [1 + i for i in changing]
    made = emit_rolled_loop(call, run, operands, known.steps, outputs, 1 + len(states), going)
    ends = dict(zip(changing, made.states, strict=True))
    at = (
        call.constant(np.array(known.steps)) if made.count is None else call.reshape(made.count, ())
    )
    for i, table in known.tables.items():
        ends[i] = call.emit(ops.Gather(0), call.constant(table), at)
    kept: list[Value | None] = []
    for i, whole in enumerate(made.rows):
        if rows:
            one = call.reshape(rows[i], (1, *rows[i].shape))
            whole = call.emit(ops.Concat(0), one, whole)
        if made.count is not None:
            done = call.emit(ops.Add(), made.count, call.constant(np.array([len(rows[:1])])))
            whole = call.counted(whole, done)
        kept.append(whole)
    return [*(ends.get(i, state) for i, state in enumerate(states)), *kept]


def _unroll_loop(
    call: OnnxCall, trips: _Trips, failed: ShapeError | InputError | None
) -> list[Value | None]:
    """`failed`: why the loop cannot be rolled.

    With a computed condition all steps run; those after the end have no effect.

    The body always gets the states of the previous step, active or not. Counters therefore stay
    constant, and a condition on them ends the loop at import time.
    """
    body, run = call.graph("body"), trips.limited(call, partial(call.run, call.graph("body")))
    made = _Loop([list(call.values[2:])])
    going = trips.allow(call, _first_condition(call), 0)
    for step in range(min(trips.most, _STEPS + 1)):
        if going is not None and not _goes_on(call, made, going):
            break
        if step == _STEPS:
            raise failed or ShapeError(f"expected a loop of at most {_STEPS} steps, found more")
        number = call.constant(np.array(step, np.int64))
        active = made.flags[-1] if made.flags else call.constant(np.array(True))
        going = _record_step(call, made, run([number, active, *made.states[-1]]))
    count = len(body.outputs) - 1 - len(made.states[0])
    rows = [_stack_outputs(call, made.rows, i, 0, False) for i in range(count)]
    return [*_final_states(call, made), *(_that_count(call, made, t) for t in rows)]


def _trip_count(call: OnnxCall) -> _Trips:
    """The trip count; without one, a bound far above the unrolling limit."""
    count = call.maybe(0)
    if count is None:
        return _Trips(_ENDLESS)
    if count.data is not None:
        return _Trips(max(call.single(0, "trip count"), 0))
    if count.elements != 1 or count.dtype is not DType.I64:
        raise ShapeError(
            f"expected one integer as trip count, found {count.dtype.value}{list(count.shape)}"
        )
    most = min(extent(call.builder, count)[1], _ENDLESS)
    return _Trips(max(int(most), 0), call.reshape(count, ()))


def _goes_on(call: OnnxCall, made: _Loop, going: Tensor) -> bool:
    if going.data is not None:
        if made.flags and going.data:
            made.flags.append(made.flags[-1])
        return bool(going.data)
    made.flags.append(call.emit(ops.And(), made.flags[-1], going) if made.flags else going)
    return True


def _record_step(call: OnnxCall, made: _Loop, outs: Sequence[Value | None]) -> Tensor:
    """Records the results of one step of the body; returns its loop condition."""
    count = len(made.states[0])
    if len(outs) <= count or not isinstance(outs[0], Tensor):
        raise ShapeError(f"expected a body with at least {count + 1} outputs, found {len(outs)}")
    made.states.append(list(outs[1 : count + 1]))
    made.rows.append([v for v in outs[count + 1 :] if isinstance(v, Tensor)])
    return scalar_condition(call, outs[0])


def _final_states(call: OnnxCall, made: _Loop) -> list[Value | None]:
    """The states after the last active step."""
    first = len(made.states) - 1 - len(made.flags)
    ends: list[Value | None] = []
    for history in zip(*made.states[first:], strict=True):
        end: Value | None = _known_end(call, history, made.flags) if made.flags else None
        if end is None:
            end = history[0]
            for active, new in zip(made.flags, history[1:], strict=True):
                end = select_value(call, active, new, end)
        ends.append(end)
    return ends


def _known_end(
    call: OnnxCall, history: Sequence[Value | None], flags: Sequence[Tensor]
) -> Tensor | None:
    """The final value of a state whose values are all constant, such as a counter."""
    values = [v.data for v in history if isinstance(v, Tensor) and v.data is not None]
    if len(values) < len(history) or len({(v.shape, v.dtype) for v in values}) > 1:
        return None
    if values[0].size > 1:
        return None
    count = call.reshape(_count_set_flags(call, flags), ())
    return call.emit(ops.Gather(0), call.constant(np.stack(values)), count)


def _count_set_flags(call: OnnxCall, flags: Sequence[Tensor]) -> Tensor:
    """The number of set flags, [1] s64."""
    return length_of(call, _concat_flags(call, flags))


def _concat_flags(call: OnnxCall, flags: Sequence[Tensor]) -> Tensor:
    parts = [call.reshape(f, (1,)) for f in flags]
    return parts[0] if len(parts) == 1 else call.emit(ops.Concat(0), *parts)


def _that_count(call: OnnxCall, made: _Loop, rows: Tensor) -> Tensor:
    """`rows`, one per step, with zeros after the last active step."""
    if not made.flags:
        return rows
    sure = call.filled((rows.shape[0] - len(made.flags),), 1, np.bool_)
    there = _concat_flags(call, made.flags)
    there = call.emit(ops.Concat(0), sure, there) if sure.elements else there
    along = call.reshape(there, (rows.shape[0], *(1,) * (len(rows.shape) - 1)))
    kept = call.emit(ops.Where(), along, rows, call.scalar(0, rows))
    return call.counted(kept, length_of(call, there))


def _stack_outputs(
    call: OnnxCall, rows: Sequence[Sequence[Tensor]], index: int, axis: int, reverse: bool
) -> Tensor:
    """Output `index` of all steps, stacked along a new axis."""
    if not rows or any(index >= len(row) for row in rows):
        raise ShapeError("expected a tensor from each of at least 1 step, found none")
    parts = []
    for row in reversed(rows) if reverse else rows:
        x = row[index]
        at = call.axis(axis, len(x.shape) + 1)
        parts.append(call.reshape(x, (*x.shape[:at], 1, *x.shape[at:])))
    return parts[0] if len(parts) == 1 else call.emit(ops.Concat(at), *parts)


def scan(call: OnnxCall) -> list[Value | None]:
    """Scan. Before opset 9 all operands have a batch axis, whose elements are done one by one."""
    count = call.integer("num_scan_inputs")
    if call.opset >= 9:
        xs = call.all()
        return _scan(call, xs[: len(xs) - count], xs[len(xs) - count :])
    if call.maybe(0) is not None:
        raise ShapeError("expected no sequence lengths, found some")
    xs = [call.x(i) for i in range(1, len(call.values))]
    made = []
    for b in range(xs[0].shape[0]):
        own = [one_of(call, x, 0, b) for x in xs]
        made.append([v for v in _scan(call, own[:-count], own[-count:]) if isinstance(v, Tensor)])
    return [_stack_outputs(call, made, i, 0, False) for i in range(len(made[0]))]


def _scan(
    call: OnnxCall, states: Sequence[Value | None], xs: Sequence[Tensor]
) -> list[Value | None]:
    body = call.graph("body")
    axes = call.list("scan_input_axes", (0,) * len(xs))
    ways = call.list("scan_input_directions" if call.opset >= 9 else "directions", (0,) * len(xs))
    if not xs or len(axes) != len(xs) or len(ways) != len(xs):
        raise ShapeError(f"expected axes of {len(xs)} inputs, found {len(axes)} and {len(ways)}")
    at = [call.axis(a, len(x.shape)) for a, x in zip(axes, xs, strict=True)]
    lengths = {x.shape[a] for a, x in zip(at, xs, strict=True)}
    steps = min(lengths)
    if len(lengths) != 1 or not 1 <= steps <= STEPS:
        raise ShapeError(f"expected 1 to {STEPS} steps of all inputs, found {sorted(lengths)}")
    backwards = [bool(w) for w in ways]
    ends, made = _steps_of_scan(call, states, xs, at, backwards)
    count = len(body.outputs) - len(states)
    along = call.list("scan_output_axes", (0,) * count)
    back = call.list("scan_output_directions", (0,) * count)
    if len(along) != count or len(back) != count:
        raise ShapeError(f"expected axes of {count} outputs, found {len(along)} and {len(back)}")
    rows = [_steps_to_axis(call, t, along[i], bool(back[i])) for i, t in enumerate(made)]
    return [*ends, *rows]


def _steps_of_scan(
    call: OnnxCall, states: Sequence[Value | None], xs: Sequence[Tensor], at: Sequence[int],
    backwards: Sequence[bool],
) -> tuple[list[Value | None], list[Tensor]]:  # fmt: skip
    """The final states and the outputs of each step, [steps, ...]."""
    body, steps, count = call.graph("body"), xs[0].shape[at[0]], len(states)
    failed: ShapeError | InputError | None = None
    if steps > _FEW:
        rows = [
            in_direction(
                call, call.transpose(x, [a, *(i for i in range(len(x.shape)) if i != a)]), b
            )
            for x, a, b in zip(xs, at, backwards, strict=True)
        ]
        operands = [LoopOperand("state", s) for s in states] + [LoopOperand("row", r) for r in rows]
        begun = call.builder.begun
        try:
            found = emit_rolled_loop(
                call, partial(call.run, body), operands, steps, range(count), count, None
            )
            call.builder.resume(begun)
            return list(found.states), found.rows
        except (ShapeError, InputError) as error:
            failed = error
    if steps > _STEPS:
        raise failed or ShapeError(f"expected at most {_STEPS} steps, found {steps}")
    made = _Loop([list(states)])
    for step in range(steps):
        parts = [
            one_of(call, x, a, steps - 1 - step if back else step)
            for x, a, back in zip(xs, at, backwards, strict=True)
        ]
        outs = call.run(body, [*made.states[-1], *parts])
        made.states.append(list(outs[:count]))
        made.rows.append([v for v in outs[count:] if isinstance(v, Tensor)])
    kept = range(len(body.outputs) - count)
    return made.states[-1], [_stack_outputs(call, made.rows, i, 0, False) for i in kept]


def _steps_to_axis(call: OnnxCall, rows: Tensor, axis: int, back: bool) -> Tensor:
    """`rows` [steps, ...] with the steps moved to `axis`, in reverse order if `back`."""
    rank = len(rows.shape)
    order = [*range(1, rank)]
    order.insert(call.axis(axis, rank), 0)
    return call.transpose(in_direction(call, rows, back), order)

"""ONNX's LSTM, GRU and RNN, unrolled: one set of nodes per time step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, ShapeError, Tensor
from edgekit.host.importers.emitter import need_rank
from edgekit.host.importers.onnx_activations import Activate, activations
from edgekit.host.importers.onnx_call import Call

_STEPS = 512  # time steps that are unrolled
_BACKWARDS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


@dataclass(frozen=True, eq=False)
class _Cell:
    """One direction: weights [gates · hidden, size] and [gates · hidden, hidden], both biases,
    the peepholes' weights [hidden] (of an LSTM: input, output, forget) and the functions.

    `before`: what inputs and states go through before they are multiplied with weights."""

    w: Tensor
    r: Tensor
    input_bias: Tensor
    hidden_bias: Tensor
    peepholes: tuple[Tensor, ...]
    functions: Sequence[Activate]
    before: Activate

    @property
    def hidden(self) -> int:
        return self.r.shape[1]


# (call, gates of the input for this step [batch, gates · hidden], cell, states) → new states
_Step = Callable[[Call, Tensor, _Cell, list[Tensor]], list[Tensor]]


def _as_it_is(x: Tensor) -> Tensor:
    return x


def lstm(call: Call, before: Activate = _as_it_is) -> list[Tensor]:
    """[Y, Y_h, Y_c]"""
    return _recurrent(call, 4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step, before)


def gru(call: Call) -> list[Tensor]:
    """[Y, Y_h]"""
    return _recurrent(call, 3, 1, ("Sigmoid", "Tanh"), _gru_step)


def rnn(call: Call) -> list[Tensor]:
    """[Y, Y_h]"""
    return _recurrent(call, 1, 1, ("Tanh",), _rnn_step)


def _recurrent(
    call: Call,
    gates: int,
    states: int,
    functions: tuple[str, ...],
    step: _Step,
    before: Activate = _as_it_is,
) -> list[Tensor]:
    x, recurrence = call.x(0), call.x(2)
    need_rank(x, 3)
    need_rank(recurrence, 3)
    hidden = call.integer("hidden_size", 0) or recurrence.shape[2]
    batch_first = bool(call.integer("layout", 0))
    x = call.transpose(x, (1, 0, 2)) if batch_first else x
    if not 1 <= hidden <= 1 << 16 or x.shape[0] > _STEPS:
        raise ShapeError(f"expected at most {_STEPS} time steps, found {x.shape[0]}")
    backwards = _BACKWARDS.get(call.text("direction", "forward"))
    if backwards is None:
        raise ShapeError(f"expected a known direction, found {call.text('direction')}")
    acts = activations(call, functions, len(backwards))
    sequences, ends = [], []
    for way, back in enumerate(backwards):
        sizes = (gates * hidden, x.shape[2], hidden)
        cell = replace(_cell(call, way, len(backwards), sizes, acts[way]), before=before)
        start = [_initial(call, 5 + k, way, x.shape[1], hidden) for k in range(states)]
        made = _run(call, x, cell, start, back, step)
        sequences.append(made[0])
        ends.append(made[1])
    directions = [call.reshape(s, (x.shape[0], 1, x.shape[1], hidden)) for s in sequences]
    y = _concat(call, 1, directions)
    last = []
    for k in range(states):
        parts = [call.reshape(end[k], (1, x.shape[1], hidden)) for end in ends]
        last.append(_concat(call, 0, parts))
    if batch_first:
        return [call.transpose(y, (2, 0, 1, 3)), *(call.transpose(t, (1, 0, 2)) for t in last)]
    return [y, *last]


def _cell(
    call: Call, way: int, ways: int, sizes: tuple[int, int, int], functions: Sequence[Activate]
) -> _Cell:
    rows, size, hidden = sizes
    zeros = np.zeros((ways, 2 * rows), np.float32)
    bias = call.constant(zeros) if call.maybe(3) is None else call.x(3)
    wanted = [(ways, rows, size), (ways, rows, hidden), (ways, 2 * rows)]
    found = [call.x(1).shape, call.x(2).shape, bias.shape]
    if wanted != found:
        raise ShapeError(f"expected weights of shapes {wanted}, found {found}")
    peepholes: tuple[Tensor, ...] = ()
    given = call.maybe(7) if rows == 4 * hidden else None
    if given is not None:
        if given.shape != (ways, 3 * hidden):
            raise ShapeError(f"expected peepholes [{ways}, {3 * hidden}], found {given.shape}")
        peepholes = tuple(_part(call, given, way, i * hidden, hidden) for i in range(3))
    return _Cell(
        _matrix(call, call.x(1), way),
        _matrix(call, call.x(2), way),
        _part(call, bias, way, 0, rows),
        _part(call, bias, way, rows, rows),
        peepholes,
        functions,
        _as_it_is,
    )


def _matrix(call: Call, x: Tensor, way: int) -> Tensor:
    shape = x.shape[1:]
    op = ops.StridedSlice((way, 0, 0), (1, 1, 1), (1, *shape), shape)
    return call.emit(op, x)


def _part(call: Call, x: Tensor, way: int, start: int, size: int) -> Tensor:
    return call.emit(ops.StridedSlice((way, start), (1, 1), (1, size), (size,)), x)


def _initial(call: Call, index: int, way: int, batch: int, hidden: int) -> Tensor:
    given = call.maybe(index)
    if given is None:
        return call.constant(np.zeros((batch, hidden), np.float32))
    need_rank(given, 3)
    if call.integer("layout", 0):
        given = call.transpose(given, (1, 0, 2))
    op = ops.StridedSlice((way, 0, 0), (1, 1, 1), (1, batch, hidden), (batch, hidden))
    return call.emit(op, given)


def _dense(call: Call, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    """x · wᵀ + bias; weights may be computed."""
    if w.data is not None and bias.data is not None:
        return call.emit(ops.FullyConnected(True), x, w, bias)
    y = call.emit(ops.MatMul(), x, call.transpose(w, (1, 0)))
    return call.emit(ops.Add(), y, bias)


def _run(
    call: Call, x: Tensor, cell: _Cell, states: list[Tensor], backwards: bool, step: _Step
) -> tuple[Tensor, list[Tensor]]:
    """All steps' first states [time, batch, hidden], and the states at the end."""
    time, batch, _ = x.shape
    whole = _dense(call, cell.before(x), cell.w, cell.input_bias)
    width = cell.w.shape[0]
    made: list[Tensor] = []
    for t in reversed(range(time)) if backwards else range(time):
        pick = ops.StridedSlice((t, 0, 0), (1, 1, 1), (1, batch, width), (batch, width))
        new = step(call, call.emit(pick, whole), cell, states)
        y = new[0]
        inside = _inside(call, t, time, batch)
        if inside is not None:
            # Behind the end of its sequence a state stays, and the output is 0.
            new = [call.emit(ops.Where(), inside, a, b) for a, b in zip(new, states, strict=True)]
            y = call.emit(ops.Where(), inside, y, call.builder.floats(0.0))
        states = new
        made.append(call.reshape(y, (1, *y.shape)))
    if backwards:
        made.reverse()
    return _concat(call, 0, made), states


def _inside(call: Call, t: int, time: int, batch: int) -> Tensor | None:
    """Which sequences of the batch have a step `t`, [batch, 1]; None: all have every step."""
    lengths = call.maybe(4)
    if lengths is None or (lengths.data is not None and bool(np.all(lengths.data >= time))):
        return None
    if lengths.shape != (batch,):
        raise ShapeError(f"expected {batch} lengths of sequences, found {list(lengths.shape)}")
    whole = call.reshape(call.convert(lengths, DType.I32), (batch, 1))
    return call.emit(ops.Less(), call.constant(np.array(t, np.int32)), whole)


def _concat(call: Call, axis: int, parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else call.emit(ops.Concat(axis), *parts)


def _sum(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.Add(), a, b)


def _product(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.Mul(), a, b)


def _rnn_step(call: Call, x: Tensor, cell: _Cell, states: list[Tensor]) -> list[Tensor]:
    inner = _sum(call, x, _dense(call, states[0], cell.r, cell.hidden_bias))
    return [cell.functions[0](inner)]


def _lstm_step(call: Call, x: Tensor, cell: _Cell, states: list[Tensor]) -> list[Tensor]:
    """Gates in the order input, output, forget, cell."""
    hidden, inner = states
    gate, squash, last = cell.functions
    gates = _sum(call, x, _dense(call, cell.before(hidden), cell.r, cell.hidden_bias))
    i, o, f, c = call.builder.emit_all(ops.Split(1, (cell.hidden,) * 4), [gates])
    if cell.peepholes:
        i = _sum(call, i, _product(call, cell.peepholes[0], inner))
        f = _sum(call, f, _product(call, cell.peepholes[2], inner))
    i, f = gate(i), gate(f)
    if call.integer("input_forget", 0):
        f = call.emit(ops.Sub(), call.builder.floats(1.0), i)
    inner = _sum(call, _product(call, f, inner), _product(call, i, squash(c)))
    if cell.peepholes:
        o = _sum(call, o, _product(call, cell.peepholes[1], inner))
    return [_product(call, gate(o), last(inner)), inner]


def _gru_step(call: Call, x: Tensor, cell: _Cell, states: list[Tensor]) -> list[Tensor]:
    """Gates in the order update, reset, hidden."""
    (hidden,), size = states, cell.hidden
    gate, squash = cell.functions
    xz, xr, xh = call.builder.emit_all(ops.Split(1, (size,) * 3), [x])

    def recurrent(value: Tensor, number: int) -> Tensor:
        begin, extent = (number * size, 0), (size, size)
        r = call.emit(ops.StridedSlice(begin, (1, 1), extent, extent), cell.r)
        own = ops.StridedSlice((number * size,), (1,), (size,), (size,))
        return _dense(call, value, r, call.emit(own, cell.hidden_bias))

    update = gate(_sum(call, xz, recurrent(hidden, 0)))
    reset = gate(_sum(call, xr, recurrent(hidden, 1)))
    if call.integer("linear_before_reset", 0):
        inner = _product(call, reset, recurrent(hidden, 2))
    else:
        inner = recurrent(_product(call, reset, hidden), 2)
    new = squash(_sum(call, xh, inner))
    # (1 − z) · new + z · hidden, as new + z · (hidden − new)
    difference = call.emit(ops.Sub(), hidden, new)
    return [_sum(call, new, _product(call, update, difference))]

"""Import of ONNX LSTM, GRU and RNN: one operator per direction (`ir/ops/recurrent.py`).

A single step, and anything that operator lacks (other activation functions, coupled gates, computed
weights), becomes a set of nodes per time step: unrolled if there are few, else a loop body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.activations import Chosen, chosen
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.loop import LoopOperand, emit_rolled_loop, in_direction
from edgekit.host.compiler.frontends.onnx.types import Value
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_shape
from edgekit.host.compiler.ir.types import DType, MisfitError, Operator, Quant, ShapeError, Tensor

_STEPS = 1 << 16  # time steps
_UNROLLED_STEPS = 16
_BACKWARDS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
# Applied to inputs and states before the products with weights.
Before = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class _Cell:
    """One direction: weights [gates · hidden, size] and [gates · hidden, hidden], both biases, the
    peephole weights [hidden] (LSTM: input, output, forget) and the functions."""

    w: Tensor
    r: Tensor
    input_bias: Tensor
    hidden_bias: Tensor
    peepholes: tuple[Tensor, ...]
    functions: Sequence[Chosen]
    before: Before | None

    @property
    def hidden(self) -> int:
        return self.r.shape[1]

    def dense(self, call: OnnxCall, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        """x · wᵀ + bias; weights may be computed."""
        x = x if self.before is None else self.before(x)
        if w.data is not None and bias.data is not None:
            return call.emit(ops.FullyConnected(True), x, w, bias)
        y = call.emit(ops.MatMul(), x, call.transpose(w, (1, 0)))
        return call.emit(ops.Add(), y, bias)


# (call, input gates of this step [batch, gates · hidden], cell, states) → new states
_Step = Callable[[OnnxCall, Tensor, _Cell, list[Tensor]], list[Tensor]]


@dataclass(frozen=True, eq=False)
class _Fused:
    """The operator for all steps, its gate bias, and its operand after the states."""

    op: ops.Recurrent
    bias: Tensor
    more: Tensor | None = None


@dataclass(frozen=True)
class _Kind:
    gates: int
    states: int
    functions: tuple[str, ...]
    step: _Step
    fused: Callable[[OnnxCall, Sequence[Operator], _Cell], _Fused]


def lstm(call: OnnxCall, before: Before | None = None) -> list[Tensor]:
    """[Y, Y_h, Y_c]"""
    functions = ("Sigmoid", "Tanh", "Tanh")
    return _import_recurrent(call, _Kind(4, 2, functions, _lstm_step, _fused_lstm), before)


def gru(call: OnnxCall) -> list[Tensor]:
    """[Y, Y_h]"""
    return _import_recurrent(call, _Kind(3, 1, ("Sigmoid", "Tanh"), _gru_step, _fused_gru))


def rnn(call: OnnxCall) -> list[Tensor]:
    """[Y, Y_h]"""
    return _import_recurrent(call, _Kind(1, 1, ("Tanh",), _rnn_step, _fused_rnn))


def _import_recurrent(call: OnnxCall, kind: _Kind, before: Before | None = None) -> list[Tensor]:
    x, recurrence = call.x(0), call.x(2)
    need_rank(x, 3, error=MisfitError)
    need_rank(recurrence, 3, error=MisfitError)
    hidden = call.integer("hidden_size", 0) or recurrence.shape[2]
    batch_first = bool(call.integer("layout", 0))
    x = call.transpose(x, (1, 0, 2)) if batch_first else x
    if not 1 <= hidden <= 1 << 16 or x.shape[0] > _STEPS:
        raise ShapeError(f"expected at most {_STEPS} time steps, found {x.shape[0]}")
    backwards = _BACKWARDS.get(call.text("direction", "forward"))
    if backwards is None:
        raise ShapeError(f"expected a known direction, found {call.text('direction')}")
    acts = chosen(call, kind.functions, len(backwards))
    sequences, ends = [], []
    for way, back in enumerate(backwards):
        sizes = (kind.gates * hidden, x.shape[2], hidden)
        cell = replace(_build_cell(call, way, len(backwards), sizes, acts[way]), before=before)
        state = (len(backwards), x.shape[1], hidden)
        start = [_initial_state(call, 5 + k, way, state) for k in range(kind.states)]
        made = _emit_layer(call, x, cell, start, back, kind)
        sequences.append(made[0])
        ends.append(made[1])
    directions = [call.reshape(s, (x.shape[0], 1, x.shape[1], hidden)) for s in sequences]
    y = _concat(call, 1, directions)
    last = []
    for k in range(kind.states):
        parts = [call.reshape(end[k], (1, x.shape[1], hidden)) for end in ends]
        last.append(_concat(call, 0, parts))
    if batch_first:
        return [call.transpose(y, (2, 0, 1, 3)), *(call.transpose(t, (1, 0, 2)) for t in last)]
    return [y, *last]


def _build_cell(
    call: OnnxCall, way: int, ways: int, sizes: tuple[int, int, int], functions: Sequence[Chosen]
) -> _Cell:
    rows, size, hidden = sizes
    shape = (ways, 2 * rows)
    bias = call.filled(shape, 0, np.float32) if call.maybe(3) is None else call.x(3)
    wanted = [(ways, rows, size), (ways, rows, hidden), (ways, 2 * rows)]
    found = [call.x(1).shape, call.x(2).shape, bias.shape]
    if wanted != found:
        raise ShapeError(f"expected weights of shapes {wanted}, found {found}")
    peepholes: tuple[Tensor, ...] = ()
    given = call.maybe(7) if rows == 4 * hidden else None
    if given is not None:
        if given.shape != (ways, 3 * hidden):
            raise ShapeError(f"expected peepholes [{ways}, {3 * hidden}], found {given.shape}")
        peepholes = tuple(_slice_direction(call, given, way, i * hidden, hidden) for i in range(3))
    return _Cell(
        _direction_weights(call, call.x(1), way),
        _direction_weights(call, call.x(2), way),
        _slice_direction(call, bias, way, 0, rows),
        _slice_direction(call, bias, way, rows, rows),
        peepholes,
        functions,
        None,
    )


def _direction_weights(call: OnnxCall, x: Tensor, way: int) -> Tensor:
    """The weights of one direction; they keep their quantization, with per-row scales."""
    shape, quant = x.shape[1:], x.quant
    if x.data is not None and quant is not None and quant.axis == 1:
        return call.quantized(x.data[way], Quant(quant.scale, quant.zero_point, 0))
    op = ops.StridedSlice((way, 0, 0), (1, 1, 1), (1, *shape), shape)
    return call.emit(op, x)


def _slice_direction(call: OnnxCall, x: Tensor, way: int, start: int, size: int) -> Tensor:
    return call.emit(ops.StridedSlice((way, start), (1, 1), (1, size), (size,)), x)


def _initial_state(call: OnnxCall, index: int, way: int, shape: tuple[int, int, int]) -> Tensor:
    """The state [batch, hidden] of one direction; `shape`: [directions, batch, hidden]."""
    given, (ways, batch, hidden) = call.maybe(index), shape
    if given is None:
        return call.filled((batch, hidden), 0, np.float32)
    batch_first = bool(call.integer("layout", 0))
    need_shape(given, (batch, ways, hidden) if batch_first else shape, "an initial state")
    if batch_first:
        given = call.transpose(given, (1, 0, 2))
    op = ops.StridedSlice((way, 0, 0), (1, 1, 1), (1, batch, hidden), (batch, hidden))
    return call.emit(op, given)


def _emit_layer(
    call: OnnxCall, x: Tensor, cell: _Cell, states: list[Tensor], backwards: bool, kind: _Kind
) -> tuple[Tensor, list[Tensor]]:
    """The first state at every step, [time, batch, hidden], and all final states."""
    functions = [f.operator for f in cell.functions]
    known = [f for f in functions if f is not None and f.recurrent]
    can = cell.r.data is not None and cell.before is None and not call.integer("input_forget", 0)
    if x.shape[0] == 1 or len(known) < len(functions) or not can:
        return _in_steps(call, x, cell, states, backwards, kind.step)
    fused = kind.fused(call, known, cell)
    if cell.r.quant is not None:
        call.builder.note("weights of recurrent layers: 8-bit in the file, converted to f32")
    gates = cell.dense(call, x, cell.w, fused.bias)
    op = replace(fused.op, backwards=backwards, clip=cell.functions[0].clip)
    lengths = _sequence_lengths(call, *x.shape[:2])
    y, *ends = call.builder.emit_all(op, [gates, cell.r, lengths, *states, fused.more])
    return y, ends


def _fused_rnn(call: OnnxCall, functions: Sequence[Operator], cell: _Cell) -> _Fused:
    return _Fused(ops.Rnn(squash=functions[0]), _add(call, cell.input_bias, cell.hidden_bias))


def _fused_lstm(call: OnnxCall, functions: Sequence[Operator], cell: _Cell) -> _Fused:
    gate, squash, last = functions
    rows = [call.reshape(p, (1, cell.hidden)) for p in cell.peepholes]
    return _Fused(
        ops.Lstm(gate=gate, squash=squash, last=last),
        _add(call, cell.input_bias, cell.hidden_bias),
        _concat(call, 0, rows) if rows else None,
    )


def _fused_gru(call: OnnxCall, functions: Sequence[Operator], cell: _Cell) -> _Fused:
    gate, squash = functions
    linear = bool(call.integer("linear_before_reset", 0))
    op = ops.Gru(gate=gate, squash=squash, linear_before_reset=linear)
    added, size = cell.hidden_bias, cell.hidden
    if not linear:
        return _Fused(op, _add(call, cell.input_bias, added))
    first, inner = call.builder.emit_all(ops.Split(0, (2 * size, size)), [added])
    zeros = call.constant(np.zeros(size, np.float32))
    return _Fused(op, _add(call, cell.input_bias, _concat(call, 0, [first, zeros])), inner)


def _in_steps(
    call: OnnxCall, x: Tensor, cell: _Cell, states: list[Tensor], backwards: bool, step: _Step
) -> tuple[Tensor, list[Tensor]]:
    """One set of nodes per time step: unrolled if there are few, else a loop."""
    time, batch, _ = x.shape
    projected = cell.dense(call, x, cell.w, cell.input_bias)
    lengths = _sequence_lengths(call, time, batch)

    def one(given: Sequence[Value | None]) -> list[Value | None]:
        """(states, input gates, step index) → (new states, output)"""
        old = [v for v in given if isinstance(v, Tensor)]
        gates, t = old[-2:]
        new = step(call, gates, cell, old[:-2])
        if lengths is None:
            return [*new, new[0]]
        # After the end of its sequence, a state is kept and the output is 0.
        inside = call.emit(ops.Less(), t, call.reshape(lengths, (batch, 1)))
        kept = [call.emit(ops.Where(), inside, a, b) for a, b in zip(new, old, strict=False)]
        return [*kept, call.emit(ops.Where(), inside, new[0], call.builder.floats(0.0))]

    call.builder.need_room((time,), np.int32)
    numbers = np.arange(time, dtype=np.int32)
    if time > _UNROLLED_STEPS:
        steps = call.constant(np.flip(numbers, 0) if backwards else numbers)
        rows = [in_direction(call, projected, backwards), steps]
        operands = [LoopOperand("state", s) for s in states] + [LoopOperand("row", r) for r in rows]
        found = emit_rolled_loop(call, one, operands, time, range(len(states)), len(states), None)
        return in_direction(call, found.rows[0], backwards), found.states
    made: list[Tensor] = []
    width = cell.w.shape[0]
    for t in reversed(range(time)) if backwards else range(time):
        pick = ops.StridedSlice((t, 0, 0), (1, 1, 1), (1, batch, width), (batch, width))
        parts = [call.emit(pick, projected), call.constant(numbers[t : t + 1].reshape(()))]
        *states, y = (v for v in one([*states, *parts]) if isinstance(v, Tensor))
        made.append(call.reshape(y, (1, *y.shape)))
    if backwards:
        made.reverse()
    return _concat(call, 0, made), states


def _sequence_lengths(call: OnnxCall, time: int, batch: int) -> Tensor | None:
    """The length of each sequence, s32; None if all have full length."""
    lengths = call.maybe(4)
    if lengths is None:
        return None
    need_shape(lengths, (batch,), "lengths of sequences")
    known = lengths.data
    if known is not None and not all(0 <= n <= time for n in known):
        raise ShapeError(f"expected sequences of 0 to {time} steps, found {known.tolist()}")
    if known is not None and all(n == time for n in known):
        return None
    return call.convert(lengths, DType.I32)


def _concat(call: OnnxCall, axis: int, parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else call.emit(ops.Concat(axis), *parts)


def _add(call: OnnxCall, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.Add(), a, b)


def _mul(call: OnnxCall, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.Mul(), a, b)


def _rnn_step(call: OnnxCall, x: Tensor, cell: _Cell, states: list[Tensor]) -> list[Tensor]:
    inner = _add(call, x, cell.dense(call, states[0], cell.r, cell.hidden_bias))
    return [cell.functions[0].emit(call, inner)]


def _lstm_step(call: OnnxCall, x: Tensor, cell: _Cell, states: list[Tensor]) -> list[Tensor]:
    """Gate order: input, output, forget, cell."""
    hidden, inner = states
    gate, squash, last = cell.functions
    gates = _add(call, x, cell.dense(call, hidden, cell.r, cell.hidden_bias))
    i, o, f, c = call.builder.emit_all(ops.Split(1, (cell.hidden,) * 4), [gates])
    if cell.peepholes:
        i = _add(call, i, _mul(call, cell.peepholes[0], inner))
        f = _add(call, f, _mul(call, cell.peepholes[2], inner))
    i, f = gate.emit(call, i), gate.emit(call, f)
    if call.integer("input_forget", 0):
        f = call.emit(ops.Sub(), call.builder.floats(1.0), i)
    inner = _add(call, _mul(call, f, inner), _mul(call, i, squash.emit(call, c)))
    if cell.peepholes:
        o = _add(call, o, _mul(call, cell.peepholes[1], inner))
    return [_mul(call, gate.emit(call, o), last.emit(call, inner)), inner]


def _gru_step(call: OnnxCall, x: Tensor, cell: _Cell, states: list[Tensor]) -> list[Tensor]:
    """Gate order: update, reset, hidden."""
    (hidden,), size = states, cell.hidden
    gate, squash = cell.functions
    xz, xr, xh = call.builder.emit_all(ops.Split(1, (size,) * 3), [x])

    def recurrent(value: Tensor, number: int) -> Tensor:
        begin, extent = (number * size, 0), (size, size)
        r = call.emit(ops.StridedSlice(begin, (1, 1), extent, extent), cell.r)
        own = ops.StridedSlice((number * size,), (1,), (size,), (size,))
        return cell.dense(call, value, r, call.emit(own, cell.hidden_bias))

    update = gate.emit(call, _add(call, xz, recurrent(hidden, 0)))
    reset = gate.emit(call, _add(call, xr, recurrent(hidden, 1)))
    if call.integer("linear_before_reset", 0):
        inner = _mul(call, reset, recurrent(hidden, 2))
    else:
        inner = recurrent(_mul(call, reset, hidden), 2)
    new = squash.emit(call, _add(call, xh, inner))
    # (1 − z) · new + z · hidden, rewritten as new + z · (hidden − new)
    difference = call.emit(ops.Sub(), hidden, new)
    return [_add(call, new, _mul(call, update, difference))]

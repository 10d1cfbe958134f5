"""ONNX's LSTM and GRU, unrolled: one set of nodes per time step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import Array, Operator, ShapeError, Tensor
from edgekit.host.importers.emitter import need_rank
from edgekit.host.importers.onnx_call import Call

_STEPS = 512  # time steps that are unrolled
_BACKWARDS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


@dataclass(frozen=True, eq=False)
class _Weights:
    """Of one direction: [gates · hidden, size], [gates · hidden, hidden], both biases."""

    w: Array
    r: Array
    input_bias: Array
    hidden_bias: Array


# (call, gates of the input for this step [batch, gates · hidden], weights, states) → new states
_Step = Callable[[Call, Tensor, _Weights, list[Tensor]], list[Tensor]]


def lstm(call: Call) -> list[Tensor]:
    """[Y, Y_h, Y_c]; default activations, no peepholes, all sequences of full length."""
    if call.maybe(7) is not None:
        raise ShapeError("expected no peepholes, found some")
    return _recurrent(call, 4, 2, _lstm_step)


def gru(call: Call) -> list[Tensor]:
    """[Y, Y_h]; default activations, all sequences of full length."""
    return _recurrent(call, 3, 1, _gru_step)


def _recurrent(call: Call, gates: int, states: int, step: _Step) -> list[Tensor]:
    x, hidden = call.x(0), call.integer("hidden_size")
    _check(call, x, hidden)
    backwards = _BACKWARDS.get(call.text("direction", "forward"))
    if backwards is None:
        raise ShapeError(f"expected a known direction, found {call.text('direction')}")
    sequences, ends = [], []
    for way, back in enumerate(backwards):
        weights = _weights(call, way, gates * hidden, x.shape[2], hidden)
        start = [_initial(call, 5 + k, way, x.shape[1], hidden) for k in range(states)]
        made = _run(call, x, weights, start, back, step)
        sequences.append(made[0])
        ends.append(made[1])
    directions = [call.reshape(s, (x.shape[0], 1, x.shape[1], hidden)) for s in sequences]
    y = _concat(call, 1, directions)
    last = []
    for k in range(states):
        parts = [call.reshape(end[k], (1, x.shape[1], hidden)) for end in ends]
        last.append(_concat(call, 0, parts))
    return [y, *last]


def _check(call: Call, x: Tensor, hidden: int) -> None:
    need_rank(x, 3)
    if call.integer("layout", 0):
        raise ShapeError("expected layout 0 (time first), found 1")
    for name in ("activations", "activation_alpha", "activation_beta", "clip"):
        if call.has(name):
            raise ShapeError(f"expected default activations, found attribute {name}")
    if not 1 <= hidden <= 1 << 16 or x.shape[0] > _STEPS:
        raise ShapeError(f"expected at most {_STEPS} time steps, found {x.shape[0]}")
    lengths = call.maybe(4)
    if lengths is not None and (lengths.data is None or bool(np.any(lengths.data != x.shape[0]))):
        raise ShapeError(f"expected all sequences to have {x.shape[0]} steps, found others")


def _weights(call: Call, way: int, rows: int, size: int, hidden: int) -> _Weights:
    w, r = call.value(1, "weights"), call.value(2, "recurrent weights")
    directions = len(_BACKWARDS[call.text("direction", "forward")])
    bias = np.zeros((directions, 2 * rows), np.float32)
    if call.maybe(3) is not None:
        bias = call.value(3, "biases")
    wanted = [(directions, rows, size), (directions, rows, hidden), (directions, 2 * rows)]
    found = [w.shape, r.shape, bias.shape]
    if wanted != found:
        raise ShapeError(f"expected weights of shapes {wanted}, found {found}")
    return _Weights(w[way], r[way], bias[way, :rows], bias[way, rows:])


def _initial(call: Call, index: int, way: int, batch: int, hidden: int) -> Tensor:
    given = call.maybe(index)
    if given is None:
        return call.constant(np.zeros((batch, hidden), np.float32))
    op = ops.StridedSlice((way, 0, 0), (1, 1, 1), (1, batch, hidden), (batch, hidden))
    return call.emit(op, given)


def _run(
    call: Call, x: Tensor, weights: _Weights, states: list[Tensor], backwards: bool, step: _Step
) -> tuple[Tensor, list[Tensor]]:
    """All steps' first states [time, batch, hidden], and the states at the end."""
    time, batch, _ = x.shape
    dense = ops.FullyConnected(True)
    whole = call.emit(dense, x, call.constant(weights.w), call.constant(weights.input_bias))
    width = weights.w.shape[0]
    made: list[Tensor] = []
    for t in reversed(range(time)) if backwards else range(time):
        pick = ops.StridedSlice((t, 0, 0), (1, 1, 1), (1, batch, width), (batch, width))
        states = step(call, call.emit(pick, whole), weights, states)
        made.append(call.reshape(states[0], (1, *states[0].shape)))
    if backwards:
        made.reverse()
    return _concat(call, 0, made), states


def _concat(call: Call, axis: int, parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else call.emit(ops.Concat(axis), *parts)


def _lstm_step(call: Call, x: Tensor, weights: _Weights, states: list[Tensor]) -> list[Tensor]:
    """Gates in the order input, output, forget, cell."""
    hidden, cell = states
    r, bias = call.constant(weights.r), call.constant(weights.hidden_bias)
    gates = call.emit(ops.Add(), x, call.emit(ops.FullyConnected(True), hidden, r, bias))
    size = hidden.shape[1]
    i, o, f, c = call.builder.emit_all(ops.Split(1, (size,) * 4), [gates])
    i, o, f = (call.emit(ops.Logistic(), gate) for gate in (i, o, f))
    kept = call.emit(ops.Mul(), f, cell)
    cell = call.emit(ops.Add(), kept, call.emit(ops.Mul(), i, call.emit(ops.Tanh(), c)))
    return [call.emit(ops.Mul(), o, call.emit(ops.Tanh(), cell)), cell]


def _gru_step(call: Call, x: Tensor, weights: _Weights, states: list[Tensor]) -> list[Tensor]:
    """Gates in the order update, reset, hidden."""
    (hidden,) = states
    size = hidden.shape[1]
    sums: Operator = ops.Split(1, (size,) * 3)
    xz, xr, xh = call.builder.emit_all(sums, [x])
    dense = ops.FullyConnected(True)

    def recurrent(value: Tensor, gate: int) -> Tensor:
        own = slice(gate * size, (gate + 1) * size)
        r, bias = call.constant(weights.r[own]), call.constant(weights.hidden_bias[own])
        return call.emit(dense, value, r, bias)

    update = call.emit(ops.Logistic(), call.emit(ops.Add(), xz, recurrent(hidden, 0)))
    reset = call.emit(ops.Logistic(), call.emit(ops.Add(), xr, recurrent(hidden, 1)))
    if call.integer("linear_before_reset", 0):
        inner = call.emit(ops.Mul(), reset, recurrent(hidden, 2))
    else:
        inner = recurrent(call.emit(ops.Mul(), reset, hidden), 2)
    new = call.emit(ops.Tanh(), call.emit(ops.Add(), xh, inner))
    # (1 − z) · new + z · hidden, as new + z · (hidden − new)
    difference = call.emit(ops.Sub(), hidden, new)
    return [call.emit(ops.Add(), new, call.emit(ops.Mul(), update, difference))]

"""Import of TensorFlow Lite's recurrent operators in f32.

A layer with several steps is one operator (`ir/ops/recurrent.py`). A single step, and anything that
operator lacks (8-bit weights, projections, coupled or normalized gates), becomes a set of nodes per
time step. The file's variables hold the states between runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from edgekit.host.compiler.frontends.tflite import quantized_recurrent as quantized
from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.frontends.tflite.conv import fake_quantized
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_shape
from edgekit.host.compiler.ir.types import Activation, DType, Operator, Quant, ShapeError, Tensor

_STEPS = 1 << 16  # time steps
_UNROLLED_STEPS = 1024
_EPSILON = 1e-8  # of gate normalization
_FUNCTIONS: dict[int, Operator | None] = {
    0: None,
    1: ops.Clamp(Activation.RELU),
    2: ops.Clamp(Activation.RELU_N1_TO_1),
    3: ops.Clamp(Activation.RELU6),
    4: ops.Tanh(),
    6: ops.Logistic(),
}
_IDENTITY = ops.Clamp(Activation.NONE)
_GATES = (0, 3, 1, 2)  # gate order of ops.Lstm: input, output, forget, cell


@dataclass(frozen=True)
class Places:
    """Input indices of one LSTM direction: the first of the input weights (input, forget, cell,
    output), recurrent weights, peepholes (input, forget, output) and biases; the projection
    weights, both states, and the first normalization weight."""

    weights: int = 1
    recurrent: int = 5
    peepholes: int = 9
    biases: int = 12
    projection: int = 16
    hidden: int = 18
    cell: int = 19
    norms: int | None = 20


_FORWARD = Places(hidden=35, cell=36, norms=None)
_BACKWARD = Places(18, 22, 26, 29, 33, 37, 38, None)


@dataclass(frozen=True, eq=False)
class _Lstm:
    """The weights of all gates, concatenated; three gates if there is no input gate."""

    call: TfliteCall
    at: Places
    w: Tensor
    r: Tensor

    @property
    def coupled(self) -> bool:
        return self.call.maybe(self.at.weights) is None

    @property
    def gates(self) -> range:
        return range(1 if self.coupled else 0, 4)

    @property
    def cells(self) -> int:
        return self.w.shape[0] // len(self.gates)

    def of_gate(self, first: int | None, gate: int) -> Tensor | None:
        return None if first is None else self.call.maybe(first + gate)

    def peephole(self, gate: int) -> Tensor | None:
        """The peephole weights of a gate; None for the cell gate, which has none."""
        index = {0: 0, 1: 1, 3: 2}.get(gate)
        found = None if index is None else self.of_gate(self.at.peepholes, index)
        if found is not None:
            need_shape(found, (self.cells,), "peephole weights")
        return found

    @property
    def normalized(self) -> bool:
        return self.of_gate(self.at.norms, 3) is not None

    @property
    def plain(self) -> bool:
        """Whether ops.Lstm supports it."""
        projected = self.call.maybe(self.at.projection) is not None
        return not (self.coupled or self.normalized or projected) and self.r.dtype is DType.F32


def sequence_lstm(call: TfliteCall) -> Tensor:
    x = _input_sequence(call, bool(call.option("TimeMajor")))
    return _to_file_order(call, _forward_lstm(call, x))


def _forward_lstm(call: TfliteCall, x: Tensor) -> Tensor:
    return quantized.lstm(call, x) if x.dtype is DType.I8 else _lstm(call, Places(), x, False)


def lstm(call: TfliteCall) -> list[Tensor] | Tensor:
    """One time step."""
    if call.option("KernelType"):
        return _basic_lstm(call)
    x = call.tensor(0, "input")
    if len(x.shape) != 2:
        raise ShapeError(f"expected an input [batch, size], found {list(x.shape)}")
    y = _forward_lstm(call, call.reshape(x, (1, *x.shape)))
    return call.reshape(y, y.shape[1:])


def bidirectional_lstm(call: TfliteCall) -> list[Tensor] | Tensor:
    _no_auxiliary(call, range(39, 48))
    x = _input_sequence(call, bool(call.option("TimeMajor")))
    made = [_lstm(call, places, x, back) for places, back in ((_FORWARD, False), (_BACKWARD, True))]
    return _merge_directions(call, made)


def _merge_directions(call: TfliteCall, made: list[Tensor]) -> list[Tensor] | Tensor:
    if not call.option("MergeOutputs"):
        return [_to_file_order(call, y) for y in made]
    return _to_file_order(call, call.emit(ops.Concat(2), *made))


def _no_auxiliary(call: TfliteCall, inputs: Sequence[int]) -> None:
    if any(call.maybe(i) is not None for i in inputs):
        raise ShapeError("expected no auxiliary input, found one")


def _input_sequence(call: TfliteCall, time_first: bool) -> Tensor:
    """The input as [time, batch, size]."""
    x = call.tensor(0, "input")
    if len(x.shape) != 3:
        raise ShapeError(f"expected sequences [batch, time, size], found {list(x.shape)}")
    x = x if time_first else call.transpose(x, (1, 0, 2))
    if x.shape[0] > _STEPS:
        raise ShapeError(f"expected at most {_STEPS} time steps, found {x.shape[0]}")
    return x


def _to_file_order(call: TfliteCall, y: Tensor) -> Tensor:
    """Steps [time, batch, size] in the file's axis order."""
    return y if call.option("TimeMajor") else call.transpose(y, (1, 0, 2))


def _lstm(call: TfliteCall, at: Places, x: Tensor, backwards: bool) -> Tensor:
    """The hidden states [time, batch, size] for all steps of x; writes back both states."""
    first = 1 if call.maybe(at.weights) is None else 0
    w = _concat_constants(call, [call.tensor(at.weights + g, "weights") for g in range(first, 4)])
    recurrent = [call.tensor(at.recurrent + g, "recurrent weights") for g in range(first, 4)]
    cell = _Lstm(call, at, w, _concat_constants(call, recurrent))
    hidden, memory = call.tensor(at.hidden, "hidden state"), call.tensor(at.cell, "cell state")
    need_shape(hidden, (x.shape[1], *cell.r.shape[1:]), "hidden state")
    need_shape(memory, (x.shape[1], cell.cells), "cell state")
    if x.shape[0] > 1 and cell.plain:
        y, hidden, memory = _fused_lstm(cell, x, hidden, memory, backwards)
    else:
        bias = None if cell.normalized else _concat_constants(call, _gate_biases(cell))
        made = []
        for now in _step_gates(call, dense(call, x, w, bias), backwards):
            hidden, memory = _lstm_step(cell, now, hidden, memory)
            made.append(hidden)
        y = _concat_steps(call, made, backwards)
    call.keep(at.hidden, hidden)
    call.keep(at.cell, memory)
    return y


def _fused_lstm(
    cell: _Lstm, x: Tensor, hidden: Tensor, memory: Tensor, backwards: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """One operator for all steps: its hidden states, and both final states."""
    call, at = cell.call, cell.at
    w, r, bias = (
        _concat_constants(call, [call.tensor(first + g, what) for g in _GATES])
        for first, what in (
            (at.weights, "weights"), (at.recurrent, "recurrent weights"), (at.biases, "bias"),
        )
    )  # fmt: skip
    peepholes = None
    if cell.peephole(0) is not None:
        rows = [call.tensor(at.peepholes + i, "peephole weights") for i in (0, 2, 1)]
        peepholes = _concat_constants(
            call, [call.reshape(_to_float(call, p), (1, *p.shape)) for p in rows]
        )
    function = _fused_activation(call) or _IDENTITY
    clip = float(call.option("CellClip"))
    op = ops.Lstm(backwards, squash=function, last=function, cell_clip=clip if clip > 0 else inf)
    ins = [dense(call, x, w, bias), r, None, hidden, memory, peepholes]
    y, hidden, memory = call.builder.emit_all(op, ins)
    return y, hidden, memory


def _step_gates(call: TfliteCall, gates: Tensor, backwards: bool) -> Iterator[Tensor]:
    """The input contribution to the gates [batch, width] at each step, in processing order."""
    time, batch, width = gates.shape
    if time > _UNROLLED_STEPS:
        raise ShapeError(f"expected at most {_UNROLLED_STEPS} time steps, found {time}")
    for t in reversed(range(time)) if backwards else range(time):
        op = ops.StridedSlice((t, 0, 0), (1, 1, 1), (1, batch, width), (batch, width))
        yield call.emit(op, gates)


def _concat_steps(call: TfliteCall, made: list[Tensor], backwards: bool) -> Tensor:
    """States [batch, size] in processing order, as [time, batch, size]."""
    rows = [call.reshape(y, (1, *y.shape)) for y in (reversed(made) if backwards else made)]
    return rows[0] if len(rows) == 1 else call.emit(ops.Concat(0), *rows)


def _gate_biases(cell: _Lstm) -> list[Tensor]:
    return [cell.call.tensor(cell.at.biases + g, "bias") for g in cell.gates]


def _lstm_step(cell: _Lstm, x: Tensor, hidden: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    call = cell.call
    total = call.emit(ops.Add(), x, dense(call, hidden, cell.r, None))
    size = total.shape[1] // len(cell.gates)
    parts = call.builder.emit_all(ops.Split(1, (size,) * len(cell.gates)), [total])
    sums = dict(zip(cell.gates, parts, strict=True))
    function = _fused_activation(call)

    def gate(number: int, state: Tensor) -> Tensor:
        value = sums[number]
        if (peephole := cell.peephole(number)) is not None:
            value = call.emit(
                ops.Add(), value, call.emit(ops.Mul(), state, _to_float(call, peephole))
            )
        if cell.normalized:
            factor = call.tensor((cell.at.norms or 0) + number, "normalization")
            bias = call.tensor(cell.at.biases + number, "bias")
            value = call.emit(ops.LayerNorm(1, _EPSILON), value, factor, bias)
        return apply(call, function if number == 2 else ops.Logistic(), value)

    forget, new = gate(1, memory), gate(2, memory)
    if cell.coupled:
        taken = call.emit(ops.Sub(), call.scalar(1, forget), forget)
    else:
        taken = gate(0, memory)
    kept = call.emit(ops.Mul(), forget, memory)
    memory = call.emit(ops.Add(), kept, call.emit(ops.Mul(), taken, new))
    memory = _clip_to_option(call, memory, "CellClip")
    hidden = call.emit(ops.Mul(), gate(3, memory), apply(call, function, memory))
    weights = call.maybe(cell.at.projection)
    if weights is not None:
        hidden = dense(call, hidden, weights, call.maybe(cell.at.projection + 1))
        hidden = _clip_to_option(call, hidden, "ProjClip")
    return hidden, memory


def _basic_lstm(call: TfliteCall) -> list[Tensor]:
    """[hidden, cell, operands, sums]. The states are plain inputs and outputs; gate order: input,
    cell, forget, output."""
    x, hidden, memory = (call.tensor(i, "operand") for i in (0, 1, 4))
    need_shape(hidden, (*x.shape[:1], hidden.shape[-1]), "hidden state")
    need_shape(memory, hidden.shape, "cell state")
    both = call.emit(ops.Concat(1), x, hidden)
    total = dense(call, both, call.tensor(2, "weights"), call.maybe(3))
    size = total.shape[1] // 4
    parts = call.builder.emit_all(ops.Split(1, (size,) * 4), [total])
    taken, forget, shown = (call.emit(ops.Logistic(), parts[i]) for i in (0, 2, 3))
    new = call.emit(ops.Mul(), taken, call.emit(ops.Tanh(), parts[1]))
    memory = call.emit(ops.Add(), new, call.emit(ops.Mul(), forget, memory))
    hidden = call.emit(ops.Mul(), shown, call.emit(ops.Tanh(), memory))
    return [hidden, memory, both, total]


def rnn(call: TfliteCall) -> Tensor:
    """One time step."""
    x = call.tensor(0, "input")
    y = _rnn(call, 1, call.reshape(x, (1, *x.shape)), False)
    return call.reshape(y, y.shape[1:])


def sequence_rnn(call: TfliteCall) -> Tensor:
    x = _input_sequence(call, bool(call.option("TimeMajor")))
    return _to_file_order(call, _rnn(call, 1, x, False))


def bidirectional_rnn(call: TfliteCall) -> list[Tensor] | Tensor:
    _no_auxiliary(call, range(9, 12))
    x = _input_sequence(call, bool(call.option("TimeMajor")))
    return _merge_directions(call, [_rnn(call, 1, x, False), _rnn(call, 5, x, True)])


def _rnn(call: TfliteCall, first: int, x: Tensor, backwards: bool) -> Tensor:
    """All hidden states; inputs from `first`: weights, recurrent weights, bias, state."""
    w, r = call.tensor(first, "weights"), call.tensor(first + 1, "recurrent weights")
    hidden, function = call.tensor(first + 3, "hidden state"), _fused_activation(call)
    sums = dense(call, x, w, call.maybe(first + 2))
    need_shape(hidden, (x.shape[1], sums.shape[2]), "hidden state")
    if x.shape[0] > 1 and r.dtype is DType.F32 and r.data is not None:
        op = ops.Rnn(backwards, squash=function or _IDENTITY)
        y, hidden = call.builder.emit_all(op, [sums, r, None, hidden])
    else:
        made = []
        for now in _step_gates(call, sums, backwards):
            total = call.emit(ops.Add(), now, dense(call, hidden, r, None))
            hidden = apply(call, function, total)
            made.append(hidden)
        y = _concat_steps(call, made, backwards)
    call.keep(first + 3, hidden)
    return y


def dense(call: TfliteCall, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """x · wᵀ + bias; with 8-bit weights, rows of x are quantized as the options specify."""
    if x.dtype is not DType.F32:
        raise ShapeError(f"expected an input of type f32, found {x.dtype.value}")
    if w.dtype is DType.I8 and call.option("AsymmetricQuantizeInputs"):
        x = fake_quantized(call, x, (x.elements // x.shape[-1], x.shape[-1]))
        w = call.emit(ops.Cast(), w)
    return call.emit(ops.FullyConnected(True), x, w, bias)


def _concat_constants(call: TfliteCall, parts: Sequence[Tensor]) -> Tensor:
    """Constants concatenated along the first axis, with per-row scales."""
    values = []
    for part in parts:
        if part.data is None:
            raise ShapeError("expected constant weights, found computed ones")
        values.append(part.data)
    first = parts[0]
    if any(t.dtype is not first.dtype or t.shape[1:] != first.shape[1:] for t in parts):
        raise ShapeError("expected weights of all gates of one type and width, found others")
    scales = [np.broadcast_to(t.quant.scale, t.shape[:1]) for t in parts if t.quant is not None]
    quant = None
    if len(scales) == len(parts) and first.dtype is DType.I8:
        scale = np.concatenate(scales)
        quant = Quant(scale, np.zeros(scale.size, np.int64), 0)
    return call.quantized(np.concatenate(values), quant)


def _to_float(call: TfliteCall, x: Tensor) -> Tensor:
    return x if x.dtype is DType.F32 else call.emit(ops.Cast(), x)


def _fused_activation(call: TfliteCall) -> Operator | None:
    number = call.option("FusedActivationFunction")
    if number not in _FUNCTIONS:
        raise ShapeError(f"expected a known activation, found number {number}")
    return _FUNCTIONS[number]


def apply(call: TfliteCall, function: Operator | None, x: Tensor) -> Tensor:
    return x if function is None else call.emit(function, x)


def _clip_to_option(call: TfliteCall, x: Tensor, option: str) -> Tensor:
    limit = float(call.option(option))
    return call.emit(ops.Clip(-limit, limit), x) if limit > 0 else x


def svdf(call: TfliteCall) -> Tensor:
    """`Rank` filters per unit: a weighted sum of each input frame. The last frames are kept as
    [batch, filters, frames] and summed with weights over time."""
    x, features = call.tensor(0, "input"), call.tensor(1, "weights of features")
    if x.dtype is DType.I8:
        return quantized.svdf(call, x)
    times, state, rank = call.tensor(2, "weights of time"), call.tensor(4, "state"), 0
    rank = int(call.option("Rank"))
    filters, frames = times.shape
    if rank < 1 or filters % rank or features.shape[:1] != (filters,) or len(x.shape) != 2:
        raise ShapeError(f"expected filters of rank {rank}, found {filters}")
    batch, units = x.shape[0], filters // rank
    need_shape(state, (batch, filters * frames), "state")
    new = call.reshape(dense(call, x, features, None), (batch, filters, 1))
    kept = call.reshape(state, (batch, filters, frames))
    memory = new
    if frames > 1:
        extent = (batch, filters, frames - 1)
        later = call.emit(ops.StridedSlice((0, 0, 1), (1, 1, 1), extent, extent), kept)
        memory = call.emit(ops.Concat(2), later, new)
    call.keep(4, call.reshape(memory, state.shape))
    if features.dtype is DType.I8 and times.dtype is DType.I8 and times.quant is None:
        # In LiteRT the scale of weights without one is 0.
        times = call.constant(np.zeros(times.shape, np.float32))
    weighted = call.emit(ops.Mul(), memory, _to_float(call, times))
    parts = call.reshape(weighted, (batch, units, rank * frames))
    y = call.emit(ops.ReduceSum((2,)), parts)
    if (bias := call.maybe(3)) is not None:
        need_shape(bias, (units,), "bias")
        y = call.emit(ops.Add(), y, bias)
    return apply(call, _fused_activation(call), y)

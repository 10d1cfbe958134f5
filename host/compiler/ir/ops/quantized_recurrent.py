"""8-bit recurrent layers with 16-bit states, over all time steps.

They are bit-exact with TensorFlow Lite's integer reference kernels. Sums wrap at 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_positive,
    need_rank,
    need_shape,
    operand,
)
from edgekit.host.compiler.ir.checks import optional as maybe
from edgekit.host.compiler.ir.fixed_point_16bit import logistic_16bit, tanh_16bit
from edgekit.host.compiler.ir.quantization import (
    I64,
    Multiplier,
    doubling_high_multiply,
    rounding_shift,
)
from edgekit.host.compiler.ir.quantized_elementwise import inverse_square_root
from edgekit.host.compiler.ir.sums import optional, required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["QuantizedLSTM", "QuantizedSVDF"]

Factor = tuple[int, int]  # multiplier and shift: multiplier · 2^(shift−31)

_GATE_BITS = 3  # integer bits of the activations' inputs
_CELL_BITS = range(7)


@dataclass(frozen=True)
class QuantizedLSTM(Operator):
    """c' = f · c + i · tanh(g), h' = o · tanh(c'). Gate order: input, forget, cell, output;
    without an input gate (`coupled`), i = 1 − f.

    ins: x s8 [t, n, size], input weights s8 [gates · h, size], state weights s8 [gates · h, out],
    addends to both sums s32 [2, gates · h] (including zero points), the initial hidden state s8
    [n, out] and cell state s16 [n, h]. Optional (or None): peepholes s16 [gates − 1, h] (on c for
    input and forget gate, on c' for the output gate), a projection s8 [out, h], the addends to its
    sums s32 [out], layer normalization weights s16 [gates, h] and bias s32 [gates, h].
    Outputs: hidden states of all steps s8 [t, n, out], then the final hidden and cell state.

    `of_input`, `of_state`, `of_cell`: factors from sums to 16-bit gates in Q3, per gate (`of_cell`:
    per peephole). `of_norm`: factors from normalized gates; `guards` replaces a variance of 0. The
    cell has `cell_bits` integer bits. A clip of 0 means none.
    """

    kind: ClassVar[str] = "quantized_lstm"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    multiplies = True
    of_input: tuple[Factor, ...] = ()
    of_state: tuple[Factor, ...] = ()
    of_cell: tuple[Factor, ...] = ()
    of_norm: tuple[Factor, ...] = ()
    guards: tuple[int, ...] = ()
    to_hidden: Factor = (0, 0)
    hidden_zero: int = 0
    to_output: Factor = (0, 0)  # factor of the projection
    zero: int = 0
    cell_bits: int = 4
    cell_clip: int = 0
    clip: int = 0

    @property
    def gates(self) -> int:
        return len(self.of_input)

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w, r = (operand(ins, i, n) for i, n in enumerate(("input", "weights", "weights")))
        bias, hidden, cell = (operand(ins, 3 + i, n) for i, n in enumerate(("bias", "h", "c")))
        if self.gates not in (3, 4):
            raise ShapeError(f"expected factors of 3 or 4 gates, found {self.gates}")
        need_rank(x, 3, "input")
        need_positive((*x.shape, *r.shape), "input and weights")
        need_rank(r, 2, "weights of the state")
        time, batch, size = x.shape
        cells, out = r.shape[0] // self.gates, r.shape[1]
        peepholes, projection, added = maybe(ins, 6), maybe(ins, 7), maybe(ins, 8)
        norms = (self.gates, cells)
        width = self.gates * cells
        wanted: list[tuple[Tensor | None, Shape, DType, str]] = [
            (x, x.shape, DType.I8, "input"),
            (w, (width, size), DType.I8, "weights"),
            (r, (width, out), DType.I8, "weights of the state"),
            (bias, (2, width), DType.I32, "bias"),
            (hidden, (batch, out), DType.I8, "hidden state"),
            (cell, (batch, cells), DType.I16, "cell state"),
            (peepholes, (self.gates - 1, cells), DType.I16, "peepholes"),
            (projection, (out, cells), DType.I8, "projection"),
            (added, (out,), DType.I32, "bias of the projection"),
            (maybe(ins, 9), norms, DType.I16, "weights of normalized gates"),
            (maybe(ins, 10), norms, DType.I32, "bias of normalized gates"),
        ]
        for t, shape, dtype, what in wanted:
            if t is not None:
                need_shape(t, shape, what)
                need_dtype(t, (dtype,), what)
        if projection is None and out != cells:
            raise ShapeError(f"expected a state of {cells} values, found {out}")
        if self.cell_bits not in _CELL_BITS:
            raise ShapeError(
                f"expected a cell state of 0 to 6 integer bits, found {self.cell_bits}"
            )
        self._check_factors(ins)
        states = [((batch, out), DType.I8), ((batch, cells), DType.I16)]
        return [((time, batch, out), DType.I8), *states]

    def _check_factors(self, ins: Sequence[Tensor | None]) -> None:
        for first, what in ((7, "projection"), (9, "normalization")):
            if (maybe(ins, first) is None) != (maybe(ins, first + 1) is None):
                raise ShapeError(f"expected weights and bias of the {what}, found one of them")
        peepholes = 0 if maybe(ins, 6) is None else self.gates - 1
        norms = 0 if maybe(ins, 9) is None else self.gates
        found = [len(f) for f in (self.of_state, self.of_cell, self.of_norm, self.guards)]
        if found != [self.gates, peepholes, norms, norms]:
            raise ShapeError(
                f"expected {self.gates} factors of the state, {peepholes} of peepholes and {norms} "
                f"of normalized gates with guards, found {found}"
            )

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        w, r, bias = required(x, 1), required(x, 2), required(x, 3)
        hidden, cell = required(x, 4), required(x, 5).astype(np.int64)
        cells = cell.shape[1]
        of_inputs, of_states = (
            _to_multipliers([f for f in factors for _ in range(cells)])
            for factors in (self.of_input, self.of_state)
        )
        y = np.zeros(outs[0].shape, np.int8)
        for t, now in enumerate(required(x, 0)):
            gates = _saturate_16bit(of_inputs.apply(_multiply_add(now, w, bias[0])))
            gates = _saturate_16bit(gates + of_states.apply(_multiply_add(hidden, r, bias[1])))
            cell, shown = self._update_cell(np.split(gates, self.gates, axis=1), cell, x)
            made = _to_multiplier(self.to_hidden).apply(shown * tanh_16bit(cell, self.cell_bits))
            hidden = np.clip(made + self.hidden_zero, -128, 127).astype(np.int8)
            hidden = self._project_hidden(hidden, optional(x, 7), optional(x, 8))
            y[t] = hidden
        return [y, hidden, cell.astype(np.int16)]

    def _update_cell(
        self, gates: list[I64], cell: I64, x: Sequence[Array | None]
    ) -> tuple[I64, I64]:
        """Return the cell's new state and the output gate."""
        peepholes = optional(x, 6)

        def opened(number: int, peephole: int, state: I64) -> I64:
            gate = gates[number]
            if peepholes is not None:
                product = state * peepholes[peephole].astype(np.int64)
                gate = _saturate_16bit(gate + _to_multiplier(self.of_cell[peephole]).apply(product))
            return logistic_16bit(self._normalize_gate(gate, number, x))

        forget = self.gates - 3
        kept = opened(forget, forget, cell)
        taken = opened(0, 0, cell) if forget else 32767 - kept
        new = tanh_16bit(self._normalize_gate(gates[forget + 1], forget + 1, x), _GATE_BITS)
        added = rounding_shift(taken * new, 15 + self.cell_bits)
        cell = _saturate_16bit(rounding_shift(kept * cell, 15) + _saturate_16bit(added))
        if self.cell_clip:
            cell = np.clip(cell, -self.cell_clip, self.cell_clip)
        return cell, opened(forget + 2, forget + 1, cell)

    def _normalize_gate(self, gate: I64, number: int, x: Sequence[Array | None]) -> I64:
        """Normalize rows to mean 0 and deviation 1, in units of 1/1024 before scaling."""
        weights, bias = optional(x, 9), optional(x, 10)
        if weights is None or bias is None:
            return gate
        count = gate.shape[1]
        mean = _divide_truncating(gate.sum(axis=1, keepdims=True) * 1024, count)
        squares = (gate * gate).sum(axis=1, keepdims=True)
        variance = _divide_truncating(squares * ((1 << 20) // count) - mean * mean, 1 << 20)
        variance = np.where(variance < 1, self.guards[number], variance)
        factor, right = inverse_square_root(variance)
        high = doubling_high_multiply(1024 * gate - mean, factor)
        sums = rounding_shift(high, right) * weights[number] + bias[number]
        thousandths = _divide_truncating(sums + np.where(sums > 0, 512, -512), 1024).astype(
            np.int32
        )
        return _saturate_16bit(_to_multiplier(self.of_norm[number]).apply(thousandths))

    def _project_hidden(self, hidden: Array, weights: Array | None, bias: Array | None) -> Array:
        if weights is None or bias is None:
            return hidden
        made = (
            _to_multiplier(self.to_output).apply(_multiply_add(hidden, weights, bias)) + self.zero
        )
        made = np.clip(made, -128, 127)
        return (np.clip(made, -self.clip, self.clip) if self.clip else made).astype(np.int8)


@dataclass(frozen=True)
class QuantizedSVDF(Operator):
    """`rank` filters per unit: each computes a value per input frame, keeps the latest ones, and
    sums them with weights over time.

    ins: x s8 [n, size], weights s8 [filters, size], addends to their sums s32 [filters] (including
    x's zero point), time weights s16 [filters, frames], bias s32 [units], the initial state s16
    [n, filters · frames]. Outputs: s8 [n, units], the final state.
    """

    kind: ClassVar[str] = "quantized_svdf"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    multiplies = True
    rank: int = 1
    of_input: Factor = (0, 0)
    to_output: Factor = (0, 0)
    zero: int = 0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w, times = operand(ins, 0, "input"), operand(ins, 1, "weights"), operand(ins, 3, "times")
        for t, what in ((x, "input"), (w, "weights"), (times, "weights of time")):
            need_rank(t, 2, what)
            need_positive(t.shape, what)
        filters, frames = times.shape
        if self.rank < 1 or filters % self.rank:
            raise ShapeError(f"expected filters of rank {self.rank}, found {filters}")
        batch, units = x.shape[0], filters // self.rank
        wanted: list[tuple[Shape, DType, str]] = [
            (x.shape, DType.I8, "input"),
            ((filters, x.shape[1]), DType.I8, "weights"),
            ((filters,), DType.I32, "bias of weights"),
            (times.shape, DType.I16, "weights of time"),
            ((units,), DType.I32, "bias"),
            ((batch, filters * frames), DType.I16, "state"),
        ]
        for i, (shape, dtype, what) in enumerate(wanted):
            need_shape(operand(ins, i, what), shape, what)
            need_dtype(operand(ins, i, what), (dtype,), what)
        return [((batch, units), DType.I8), ((batch, filters * frames), DType.I16)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        sums = _multiply_add(required(x, 0), required(x, 1), required(x, 2))
        new = _saturate_16bit(_to_multiplier(self.of_input).apply(sums))
        times = required(x, 3).astype(np.int64)
        state = required(x, 5).reshape(len(new), *times.shape)
        state = np.concatenate([state[:, :, 1:], new[:, :, None]], axis=2)
        totals = (state * times).sum(axis=2).reshape(*outs[0].shape, self.rank).sum(axis=2)
        totals = (totals + required(x, 4)).astype(np.int32)
        y = np.clip(_to_multiplier(self.to_output).apply(totals) + self.zero, -128, 127)
        return [y.astype(np.int8), state.astype(np.int16).reshape(outs[1].shape)]


def _to_multiplier(factor: Factor) -> Multiplier:
    return _to_multipliers([factor])


def _to_multipliers(factors: Sequence[Factor]) -> Multiplier:
    pairs = np.array(factors, np.int32)
    return Multiplier(pairs[:, 0], pairs[:, 1])


def _divide_truncating(x: I64, by: int) -> I64:
    """x / by, truncated toward 0."""
    quotient: I64 = np.sign(x) * (np.abs(x) // by)
    return quotient


def _saturate_16bit(x: I64) -> I64:
    """Saturate to 16 bits."""
    return np.clip(x, -32768, 32767)


def _multiply_add(x: Array, weights: Array, bias: Array) -> Array:
    """x · weightsᵀ + bias."""
    total = x.astype(np.int64) @ weights.astype(np.int64).T
    return (total + bias).astype(np.int32)

"""Recurrent layers of 8-bit codes whose states have 16 bits, all time steps in one operator, as
TensorFlow Lite's integer reference kernels compute them. Sums wrap at 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.graph.checks import need_dtype, need_positive, need_rank, need_shape, operand
from edgekit.host.graph.checks import optional as maybe
from edgekit.host.graph.fixed_point_16bit import logistic_16bit, tanh_16bit
from edgekit.host.graph.quantization import I64, Multiplier, rounding_shift
from edgekit.host.graph.sums import optional, required
from edgekit.host.graph.types import Array, DType, Operator, Shape, ShapeError, Tensor

Factor = tuple[int, int]  # multiplier and shift: multiplier · 2^(shift−31)

_GATE_BITS = 3  # integer bits of what activations get
_CELL_BITS = range(7)


@dataclass(frozen=True)
class CodedLstm(Operator):
    """c' = f · c + i · tanh(g), h' = o · tanh(c'). Gates in the order input, forget, cell, output;
    without an input gate (`coupled`) it is 1 − f.

    ins: x s8 [t, n, size], weights s8 [gates · h, size] and those of the state s8
    [gates · h, out], what is added to the sums of both s32 [2, gates · h] (zero points are in it),
    the hidden state before s8 [n, out] and the cell's s16 [n, h]; then or None: peepholes s16
    [gates − 1, h] (of c for input and forget gate, of c' for the output gate), a projection s8
    [out, h] and what is added to its sums s32 [out].
    Outputs: hidden states of all steps s8 [t, n, out], then both states at the end.

    `of_input`, `of_state`, `of_cell`: from sums to gates, Q3 of 16 bits, by gate (of_cell: by
    peephole). The cell has `cell_bits` integer bits; clips of 0 are none.
    """

    kind: ClassVar[str] = "coded_lstm"
    of_input: tuple[Factor, ...] = ()
    of_state: tuple[Factor, ...] = ()
    of_cell: tuple[Factor, ...] = ()
    to_hidden: Factor = (0, 0)
    hidden_zero: int = 0
    to_output: Factor = (0, 0)  # of the projection
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
        need_rank(x, 3, "input")
        need_positive((*x.shape, *r.shape), "input and weights")
        need_rank(r, 2, "weights of the state")
        time, batch, size = x.shape
        cells, out = r.shape[0] // self.gates, r.shape[1]
        peepholes, projection, added = maybe(ins, 6), maybe(ins, 7), maybe(ins, 8)
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
        states = [((batch, out), DType.I8), ((batch, cells), DType.I16)]
        return [((time, batch, out), DType.I8), *states]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        w, r, bias = required(x, 1), required(x, 2), required(x, 3)
        hidden, cell = required(x, 4), required(x, 5).astype(np.int64)
        cells = cell.shape[1]
        of_inputs, of_states = (
            _each([f for f in factors for _ in range(cells)])
            for factors in (self.of_input, self.of_state)
        )
        y = np.zeros(outs[0].shape, np.int8)
        for t, now in enumerate(required(x, 0)):
            gates = _short(of_inputs.apply(_sums(now, w, bias[0])))
            gates = _short(gates + of_states.apply(_sums(hidden, r, bias[1])))
            cell, shown = self._cell(np.split(gates, self.gates, axis=1), cell, optional(x, 6))
            made = _one(self.to_hidden).apply(shown * tanh_16bit(cell, self.cell_bits))
            hidden = np.clip(made + self.hidden_zero, -128, 127).astype(np.int8)
            hidden = self._projected(hidden, optional(x, 7), optional(x, 8))
            y[t] = hidden
        return [y, hidden, cell.astype(np.int16)]

    def _cell(self, gates: list[I64], cell: I64, peepholes: Array | None) -> tuple[I64, I64]:
        """The cell's new state, and the output gate."""

        def seen(gate: I64, number: int, state: I64) -> I64:
            if peepholes is None:
                return gate
            product = state * peepholes[number].astype(np.int64)
            return _short(gate + _one(self.of_cell[number]).apply(product))

        *first, forget, new, shown = gates
        forget = logistic_16bit(seen(forget, len(first), cell))
        taken = logistic_16bit(seen(first[0], 0, cell)) if first else 32767 - forget
        added = rounding_shift(taken * tanh_16bit(new, _GATE_BITS), 15 + self.cell_bits)
        cell = _short(rounding_shift(forget * cell, 15) + _short(added))
        if self.cell_clip:
            cell = np.clip(cell, -self.cell_clip, self.cell_clip)
        return cell, logistic_16bit(seen(shown, len(first) + 1, cell))

    def _projected(self, hidden: Array, weights: Array | None, bias: Array | None) -> Array:
        if weights is None or bias is None:
            return hidden
        made = _one(self.to_output).apply(_sums(hidden, weights, bias)) + self.zero
        made = np.clip(made, -128, 127)
        return (np.clip(made, -self.clip, self.clip) if self.clip else made).astype(np.int8)


@dataclass(frozen=True)
class CodedSvdf(Operator):
    """`rank` filters per unit: each makes one value of an input frame, keeps the last ones, and
    sums them with weights over time.

    ins: x s8 [n, size], weights s8 [filters, size], what is added to their sums s32 [filters]
    (x's zero point is in it), weights of time s16 [filters, frames], bias s32 [units], the state
    before s16 [n, filters · frames]. Outputs: s8 [n, units], the state.
    """

    kind: ClassVar[str] = "coded_svdf"
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
        sums = _sums(required(x, 0), required(x, 1), required(x, 2))
        new = _short(_one(self.of_input).apply(sums))
        times = required(x, 3).astype(np.int64)
        state = required(x, 5).reshape(len(new), *times.shape)
        state = np.concatenate([state[:, :, 1:], new[:, :, None]], axis=2)
        totals = (state * times).sum(axis=2).reshape(*outs[0].shape, self.rank).sum(axis=2)
        totals = (totals + required(x, 4)).astype(np.int32)
        y = np.clip(_one(self.to_output).apply(totals) + self.zero, -128, 127)
        return [y.astype(np.int8), state.astype(np.int16).reshape(outs[1].shape)]


def _one(factor: Factor) -> Multiplier:
    return _each([factor])


def _each(factors: Sequence[Factor]) -> Multiplier:
    pairs = np.array(factors, np.int32)
    return Multiplier(pairs[:, 0], pairs[:, 1])


def _short(x: I64) -> I64:
    """Saturated at 16 bits."""
    return np.clip(x, -32768, 32767)


def _sums(x: Array, weights: Array, bias: Array) -> Array:
    """x · weightsᵀ + bias."""
    total = x.astype(np.int64) @ weights.astype(np.int64).T
    return (total + bias).astype(np.int32)

"""Recurrent layers: one operator per direction, over all time steps.

The input contributions to the gates, x · Wᵀ + bias, are computed for all steps by a preceding
FullyConnected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_rank, need_shape
from edgekit.host.compiler.ir.checks import operand as given
from edgekit.host.compiler.ir.checks import optional as maybe
from edgekit.host.compiler.ir.ops.activations import Tanh
from edgekit.host.compiler.ir.ops.elementwise import Logistic
from edgekit.host.compiler.ir.sums import optional, required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["Gru", "Lstm", "Recurrent", "Rnn"]

_REAL = Tensor("", (), DType.F32)
_LOGISTIC, _TANH = Logistic(), Tanh()

Rounded = Callable[[Array], Array]


class Multiply(Protocol):
    """Multiplies a state [n, h] by the columns of weights from `first` until `end`."""

    def __call__(self, state: Array, first: int = 0, end: int | None = None) -> Array: ...


def _as_it_is(x: Array) -> Array:
    return x


@dataclass(frozen=True)
class Recurrent(Operator):
    """ins: input contributions to the gates [t, n, gates · h], state weights [gates · h, h],
    sequence lengths [n] s32 or None, the initial hidden state [n, h], then further inputs of a
    subclass. Outputs: hidden states of all steps [t, n, h], then each final state [n, h].

    After the end of its sequence, a state does not change and the output is 0. `backwards`: process
    steps from last to first. `clip` limits the inputs of `gate` and `squash`. Sums are computed in
    f64 and rounded at each step. All tensors are f32, or the weights are f16, or the first two and
    the hidden states of all steps: then sums are f16, as are states where they are multiplied.
    """

    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.YES
    multiplies = True
    halves = 2, 1

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    backwards: bool = False
    clip: float = math.inf

    @property
    def functions(self) -> tuple[Operator, ...]:
        """The activation functions; the class of each has the trait `recurrent`."""
        raise TypeError(f"{self.kind} has no functions")

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, weights = given(ins, 0, "gates of inputs"), given(ins, 1, "weights of the state")
        lengths = maybe(ins, 2)
        need_rank(x, 3, "gates of inputs")
        need_positive(x.shape, "gates of inputs")
        (time, batch), hidden = x.shape[:2], x.shape[2] // self.gates
        need_shape(weights, (self.gates * hidden, hidden), "weights of the state")
        need_shape(x, (time, batch, self.gates * hidden), "gates of inputs")
        if lengths is not None:
            need_shape(lengths, (batch,), "lengths of sequences")
            need_dtype(lengths, (DType.I32,), "lengths of sequences")
        states = [given(ins, 3 + i, "state") for i in range(self.states)]
        for state in states:
            need_shape(state, (batch, hidden), "state")
        need_dtype(x, (DType.F32, DType.F16), "gates of inputs")
        need_dtype(weights, (x.dtype, DType.F16), "weights of the state")
        for t in (t for t in ins[3:] if t is not None):
            need_dtype(t, (DType.F32,), "operands")
        if not all(f.recurrent for f in self.functions):
            raise ShapeError(
                "expected activations that recurrent layers support, found "
                f"{[f.kind for f in self.functions]}"
            )
        if not self.clip > 0:
            raise ShapeError(f"expected a positive clip, found {self.clip}")
        return [((time, batch, hidden), x.dtype)] + [((batch, hidden), DType.F32)] * self.states

    def terms(self, ins: Sequence[Tensor | None]) -> int:
        return given(ins, 1, "weights").shape[0]  # of a step's gates

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return self.computed(x, _as_it_is)

    def computed(self, x: Sequence[Array | None], rounded: Rounded) -> list[Array]:
        """Compute the outputs; all sums and function values pass through `rounded`."""
        gates, lengths = required(x, 0), optional(x, 2)
        weights = required(x, 1)
        multiply = _product_with(weights, gates.dtype)
        states = [required(x, 3 + i) for i in range(self.states)]
        y = np.zeros((*gates.shape[:2], weights.shape[1]), gates.dtype)
        steps = range(len(gates))
        for t in reversed(steps) if self.backwards else steps:
            new = self.step(gates[t], multiply, states, x[3 + self.states :], rounded)
            if lengths is None:
                y[t], states = new[0], new
            else:
                inside = (t < lengths)[:, None]
                y[t] = np.where(inside, new[0], 0)
                states = [np.where(inside, a, b) for a, b in zip(new, states, strict=True)]
        return [y, *states]

    def step(
        self,
        x: Array,
        multiply: Multiply,
        states: list[Array],
        more: Sequence[Array | None],
        rounded: Rounded,
    ) -> list[Array]:
        """Return the new states [n, h] of one step, from the input contributions
        [n, gates · h], the products with the weights, the states, and a subclass's inputs."""
        raise TypeError(f"{self.kind} has no step")

    def _apply_function(self, function: Operator, x: Array, rounded: Rounded) -> Array:
        return rounded(function.reference((x,), (_REAL,), (_REAL,))[0])

    def _apply_clipped(self, function: Operator, x: Array, rounded: Rounded) -> Array:
        return self._apply_function(
            function, np.clip(x, -self.clip, self.clip).astype(np.float32), rounded
        )


def _product_with(weights: Array, kind: np.dtype[Any]) -> Multiply:
    """Products of states, rounded to `kind`, with the transposed `weights`, rounded to it too, but
    in f32."""
    wide = weights.astype(np.float64).T

    def multiply(state: Array, first: int = 0, end: int | None = None) -> Array:
        sums = state.astype(kind).astype(np.float64) @ wide[:, first:end]
        y: Array = sums.astype(kind).astype(np.float32)
        return y

    return multiply


@dataclass(frozen=True)
class Rnn(Recurrent):
    """h' = squash(x + h · R)."""

    kind: ClassVar[str] = "rnn"
    squash: Operator = _TANH

    @property
    def functions(self) -> tuple[Operator, ...]:
        return (self.squash,)

    def step(
        self,
        x: Array,
        multiply: Multiply,
        states: list[Array],
        more: Sequence[Array | None],
        rounded: Rounded,
    ) -> list[Array]:
        sums = rounded(x + multiply(states[0]))
        return [self._apply_clipped(self.squash, sums, rounded)]


@dataclass(frozen=True)
class Lstm(Recurrent):
    """Gate order: input, output, forget, cell. c' = f · c + i · squash(g), h' = o · last(c').

    ins: ..., the initial cell state [n, h], and peepholes [3, h] or None: factors of c for the
    input gate, of c' for the output gate, of c for the forget gate. `cell_clip` limits c'.
    """

    kind: ClassVar[str] = "lstm"
    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    gate: Operator = _LOGISTIC
    squash: Operator = _TANH
    last: Operator = _TANH
    cell_clip: float = math.inf

    @property
    def functions(self) -> tuple[Operator, ...]:
        return self.gate, self.squash, self.last

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        outs = super().infer(ins)
        peepholes = maybe(ins, 5)
        if peepholes is not None:
            need_shape(peepholes, (3, outs[0][0][2]), "peepholes")
        if not self.cell_clip > 0:
            raise ShapeError(f"expected a positive clip, found {self.cell_clip}")
        return outs

    def step(
        self,
        x: Array,
        multiply: Multiply,
        states: list[Array],
        more: Sequence[Array | None],
        rounded: Rounded,
    ) -> list[Array]:
        hidden, cell = states
        peepholes = optional(more, 0)
        i, o, f, g = np.split(rounded(x + multiply(hidden)), 4, axis=1)
        if peepholes is not None:
            i, f = i + peepholes[0] * cell, f + peepholes[2] * cell
        i, f = (
            self._apply_clipped(self.gate, i, rounded),
            self._apply_clipped(self.gate, f, rounded),
        )
        cell = rounded(f * cell + i * self._apply_clipped(self.squash, g, rounded))
        cell = np.clip(cell, -self.cell_clip, self.cell_clip).astype(np.float32)
        if peepholes is not None:
            o = o + peepholes[1] * cell
        o = self._apply_clipped(self.gate, o, rounded)
        return [o * self._apply_function(self.last, cell, rounded), cell]


@dataclass(frozen=True)
class Gru(Recurrent):
    """Gate order: update, reset, hidden. h' = (1 − z) · new + z · h, where new is
    squash(x + (r · h) · R) or, with `linear_before_reset`, squash(x + r · (h · R + bias)).

    ins: ..., that bias [h] or None.
    """

    kind: ClassVar[str] = "gru"
    gates: ClassVar[int] = 3
    gate: Operator = _LOGISTIC
    squash: Operator = _TANH
    linear_before_reset: bool = False

    @property
    def functions(self) -> tuple[Operator, ...]:
        return self.gate, self.squash

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        outs = super().infer(ins)
        bias = maybe(ins, 4)
        if bias is not None:
            if not self.linear_before_reset:
                raise ShapeError("expected no bias after the reset gate, found one")
            need_shape(bias, outs[0][0][2:], "bias of the state")
        return outs

    def step(
        self,
        x: Array,
        multiply: Multiply,
        states: list[Array],
        more: Sequence[Array | None],
        rounded: Rounded,
    ) -> list[Array]:
        (hidden,), bias = states, optional(more, 0)
        size = hidden.shape[1]
        sums = rounded(x[:, : 2 * size] + multiply(hidden, 0, 2 * size))
        z, r = np.split(self._apply_clipped(self.gate, sums, rounded), 2, axis=1)
        if self.linear_before_reset:
            linear = multiply(hidden, 2 * size)
            added = r * rounded(linear if bias is None else linear + bias)
        else:
            added = multiply(r * hidden, 2 * size)
        new = self._apply_clipped(self.squash, rounded(x[:, 2 * size :] + added), rounded)
        return [rounded(new + z * (hidden - new))]

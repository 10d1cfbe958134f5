"""Normalization by mean and variance, or by Euclidean norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import quantized_elementwise as quantized
from edgekit.host.compiler.ir.checks import (
    FLOATS,
    need_dtype,
    need_positive,
    need_scale,
    operand,
    optional,
)
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["LayerNorm", "UnitLength"]

_UNIT_LIMIT = 1 << 15  # with more values, the sum of squares might overflow s32


@dataclass(frozen=True)
class LayerNorm(Operator):
    """ins: x f32 or f16, factor or None, shift or None of the same dtype and size as a row.

    A row covers the last `axes` axes: (x - mean) / sqrt(variance + epsilon) * factor + shift.
    """

    kind: ClassVar[str] = "layer_norm"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.WIDENED
    axes: int = 1
    epsilon: float = 1e-5

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, FLOATS, "input")
        need_positive(x.shape, "input shape")
        if not 0 < self.axes <= len(x.shape) or not self.epsilon >= 0:
            raise ShapeError(
                f"expected 1 to {len(x.shape)} axes and an epsilon of at least 0, found "
                f"{self.axes} and {self.epsilon}"
            )
        for index, what in ((1, "factor"), (2, "shift")):
            term = optional(ins, index)
            if term is None:
                continue
            need_dtype(term, (x.dtype,), what)
            if term.elements != self.row(x.shape):
                raise ShapeError(
                    f"expected a {what} of {self.row(x.shape)} values, found {list(term.shape)}"
                )
        return [(x.shape, x.dtype)]

    def row(self, shape: Shape) -> int:
        """Number of values normalized together."""
        return math.prod(shape[-self.axes :])

    def works_by_rows(self) -> bool:
        return self.axes == 1

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        rows = values.reshape(-1, self.row(values.shape)).astype(np.float64)
        centered = rows - rows.mean(axis=1, keepdims=True)
        variance = np.square(centered).mean(axis=1, keepdims=True)
        y = centered / np.sqrt(variance + self.epsilon)
        for i, term in enumerate(x[1:3]):
            if term is not None:
                wide = term.reshape(-1).astype(np.float64)
                y = y * wide if i == 0 else y + wide
        return [y.astype(values.dtype).reshape(values.shape)]


@dataclass(frozen=True)
class UnitLength(Operator):
    """Divides each 8-bit row (last axis) by its Euclidean norm; output scale 1/128, zero point at
    the middle of the range."""

    kind: ClassVar[str] = "unit_length"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, (DType.I8, DType.U8), "input")
        need_scale(x, "input")
        need_positive((*x.shape, len(x.shape)), "input shape")
        if x.shape[-1] > _UNIT_LIMIT:
            raise ShapeError(f"expected rows of at most {_UNIT_LIMIT}, found {x.shape[-1]}")
        return [(x.shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return [quantized.unit_length(required(x, 0), operand(ins, 0, "input"), outs[0])]

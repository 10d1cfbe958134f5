"""Sorting operators: the k largest values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_positive, operand
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["TopK"]

_SORTABLE = (DType.F32, DType.I8, DType.U8, DType.I16, DType.I32, DType.I64)


@dataclass(frozen=True)
class TopK(Operator):
    """[values, indices] of the `k` largest (`smallest`: smallest) along the last axis, sorted.

    Ties go to the lower index; NaN comes last. `index`: s32 or s64.
    """

    kind: ClassVar[str] = "top_k"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    k: int = 1
    smallest: bool = False
    index: DType = DType.I64

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, _SORTABLE, "input")
        need_positive(x.shape, "input shape")
        if not x.shape or not 1 <= self.k <= x.shape[-1]:
            raise ShapeError(f"expected k of 1 to the last of {list(x.shape)}, found {self.k}")
        shape = (*x.shape[:-1], self.k)
        return [(shape, x.dtype), (shape, self.index)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        descending = -values if values.dtype.kind == "f" else ~values  # −x overflows for minimum
        keys = values if self.smallest else descending
        order = np.argsort(keys, axis=-1, kind="stable")[..., : self.k]
        picked = np.take_along_axis(values, order, axis=-1)
        return [picked, order.astype(self.index.numpy)]

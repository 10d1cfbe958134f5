"""Operators that select, place or repeat elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    need_axis,
    need_dtype,
    need_positive,
    need_rank,
    operand,
)
from edgekit.host.compiler.ir.ops.layout import Moving
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["BroadcastTo", "Gather", "GatherQuantized", "Scatter"]

_JOINS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Gather(Moving):
    """ins: x, indices (s32 or s64, any shape; negative ones count from the end).

    Output: x's shape with `axis` replaced by the shape of the indices. Out-of-range indices are
    clamped, so that a model cannot read memory outside x.
    """

    kind: ClassVar[str] = "gather"
    axis: int = 0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, indices = operand(ins, 0, "input"), operand(ins, 1, "indices")
        need_axis(self.axis, len(x.shape))
        need_dtype(indices, (DType.I32, DType.I64), "indices")
        need_positive((x.shape[self.axis],), "size of the gathered axis")
        return [(x.shape[: self.axis] + indices.shape + x.shape[self.axis + 1 :], x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, indices = required(x, 0), required(x, 1).astype(np.int64)
        size = values.shape[self.axis]
        picks = np.clip(np.where(indices < 0, indices + size, indices), 0, size - 1)
        return [np.take(values, picks, axis=self.axis)]


@dataclass(frozen=True)
class GatherQuantized(Operator):
    """ins: quantized values s8 [rows, run], indices as in Gather, scale f32 [rows, groups].

    Output f32 [*indices, run]: the selected rows, dequantized; each group of run / groups
    neighboring values in a row has a scale.
    """

    kind: ClassVar[str] = "gather_quantized"
    elementwise = False
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "move"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    quantized_weights = True

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        table, indices = operand(ins, 0, "table"), operand(ins, 1, "indices")
        scale = operand(ins, 2, "scales")
        need_dtype(table, (DType.I8,), "table")
        need_dtype(indices, (DType.I32, DType.I64), "indices")
        need_dtype(scale, (DType.F32,), "scales")
        need_rank(table, 2, "table")
        need_rank(scale, 2, "scales")
        need_positive((*table.shape, *scale.shape), "table and scales")
        (rows, run), (of, groups) = table.shape, scale.shape
        if of != rows or run % groups:
            raise ShapeError(
                f"expected scales for {rows} rows in groups that divide {run}, found "
                f"{list(scale.shape)}"
            )
        return [((*indices.shape, run), DType.F32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        table, scale = required(x, 0), required(x, 2)
        rows, run = table.shape
        at = required(x, 1).astype(np.int64)
        at = np.clip(np.where(at < 0, at + rows, at), 0, rows - 1)
        groups = scale.shape[1]
        picked = table[at].reshape(*at.shape, groups, run // groups).astype(np.float32)
        return [(picked * scale[at][..., None]).reshape(outs[0].shape)]


@dataclass(frozen=True)
class Scatter(Operator):
    """ins: x [n, ...], indices [m] (s32 or s64; negative ones count from the end) and updates
    [m, ...].

    Output: x with the indexed rows replaced by updates (`join` none) or combined with them (add,
    mul, max, min), in order of the indices. Out-of-range indices are ignored.
    """

    kind: ClassVar[str] = "scatter"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "move"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    join: str = "none"

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, indices = operand(ins, 0, "input"), operand(ins, 1, "indices")
        updates = operand(ins, 2, "updates")
        need_dtype(indices, (DType.I32, DType.I64), "indices")
        need_dtype(updates, (x.dtype,), "updates")
        if self.join not in ("none", *_JOINS):
            raise ShapeError(f"expected to join by none, {', '.join(_JOINS)}, found {self.join}")
        if self.join != "none" and x.dtype in (DType.BOOL, DType.F16):
            raise ShapeError(f"expected numbers to join, found {x.dtype.value}")
        if len(indices.shape) != 1 or not x.shape or updates.shape != indices.shape + x.shape[1:]:
            raise ShapeError(
                f"expected a vector of indices and as many rows of updates for {list(x.shape)}, "
                f"found {list(indices.shape)} and {list(updates.shape)}"
            )
        return [(x.shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        y, indices = required(x, 0).copy(), required(x, 1).astype(np.int64)
        rows = np.where(indices < 0, indices + len(y), indices)
        inside = (rows >= 0) & (rows < len(y))
        rows, updates = rows[inside], required(x, 2)[inside]
        with np.errstate(all="ignore"):
            if self.join == "none":
                y[rows] = updates
            else:
                _JOINS[self.join].at(y, rows, updates)
        return [y]


@dataclass(frozen=True)
class BroadcastTo(Moving):
    """x repeated to `shape` by NumPy's broadcasting rules."""

    kind: ClassVar[str] = "broadcast_to"
    shape: Shape = ()

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        padded = (1,) * (len(self.shape) - len(x.shape)) + x.shape
        if len(padded) != len(self.shape) or any(
            d not in (1, s) or s < 0 for d, s in zip(padded, self.shape, strict=True)
        ):
            raise ShapeError(
                f"expected an input that broadcasts to {list(self.shape)}, found {list(x.shape)}"
            )
        return [(self.shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return [np.ascontiguousarray(np.broadcast_to(required(x, 0), self.shape))]

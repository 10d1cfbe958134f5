"""Operators that pick or repeat elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.graph.checks import need_axis, need_dtype, need_positive, operand
from edgekit.host.graph.sums import required
from edgekit.host.graph.types import Array, DType, Operator, Shape, ShapeError, Tensor


@dataclass(frozen=True)
class Gather(Operator):
    """ins: x, indices (s32 or s64, any shape, negative ones count from the end).

    Output: x's shape with `axis` replaced by the shape of the indices. Indices outside of the
    axis read its nearest end: what a model computes must not reach other memory.
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
class BroadcastTo(Operator):
    """x repeated to `shape`, as NumPy broadcasts."""

    kind: ClassVar[str] = "broadcast_to"
    shape: Shape = ()

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        padded = (1,) * (len(self.shape) - len(x.shape)) + x.shape
        if len(padded) != len(self.shape) or any(
            d not in (1, s) for d, s in zip(padded, self.shape, strict=True)
        ):
            raise ShapeError(
                f"expected an input that broadcasts to {list(self.shape)}, found {list(x.shape)}"
            )
        return [(self.shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return [np.ascontiguousarray(np.broadcast_to(required(x, 0), self.shape))]

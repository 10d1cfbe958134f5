"""Matrix products that transpose operands while reading and results while writing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.ir.checks import operand
from edgekit.host.compiler.ir.ops.matmul import MatMul
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.types import Array, DType, Shape, Tensor

__all__ = ["ViewedMatMul"]


@dataclass(frozen=True)
class ViewedMatMul(MatMul):
    """Float MatMul of permuted views: axis i of a is axis a_axes[i] of the first input (the last
    axis is not moved), b_axes likewise for the second; axis i of the output is axis y_axes[i] of
    the product. Empty means the identity. The product is multiplied by `scale`.
    """

    a_axes: tuple[int, ...] = ()
    b_axes: tuple[int, ...] = ()
    y_axes: tuple[int, ...] = ()
    scale: float = 1.0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        a, b = operand(ins, 0, "first matrix"), operand(ins, 1, "second matrix")
        seen = [
            replace(t, shape=ordered(t.shape, axes), data=None)
            for t, axes in ((a, self.a_axes), (b, self.b_axes))
        ]
        shape, dtype = super().infer(seen)[0]
        return [(ordered(shape, self.y_axes), dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        pairs = ((required(x, 0), self.a_axes), (required(x, 1), self.b_axes))
        seen = [v.transpose(axes) if axes else v for v, axes in pairs]
        y = super().reference(seen, ins, outs)[0] * np.asarray(self.scale, seen[0].dtype)
        return [np.ascontiguousarray(y.transpose(self.y_axes) if self.y_axes else y)]


def ordered(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Permute a shape; empty `axes` mean the identity."""
    return tuple(shape[a] for a in axes) if axes else shape

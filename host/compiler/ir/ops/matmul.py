"""Matrix products of two computed tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import quantized_elementwise as quantized
from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_scale, operand
from edgekit.host.compiler.ir.ops.operands import broadcast
from edgekit.host.compiler.ir.quantization import matrix_multiplier, shortened
from edgekit.host.compiler.ir.sums import half_product, required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, MisfitError, Operator, Shape, Tensor

__all__ = ["MatMul", "ViewedMatMul"]

_TYPES = (DType.F32, DType.F16, DType.I32, DType.I64, DType.I8, DType.I16)


@dataclass(frozen=True)
class MatMul(Operator):
    """ins: a [..., m, k], b [..., k, n] of f32, f16, s32, s64, or s8 or s16 with scales;
    leading axes broadcast.

    s8 results are requantized with two roundings, s16 ones with a 16-bit factor and one rounding,
    as in LiteRT's reference. The importer reshapes operands of rank below 2.
    """

    kind: ClassVar[str] = "matmul"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.YES
    multiplies = True
    on_nna = True

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        a, b = operand(ins, 0, "first matrix"), operand(ins, 1, "second matrix")
        need_dtype(a, _TYPES, "first matrix")
        need_dtype(b, (a.dtype,), "second matrix")
        need_scale(a, "first matrix")
        need_scale(b, "second matrix")
        need_positive((*a.shape, *b.shape), "sizes of matrices")
        if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
            raise MisfitError(
                f"expected matrices that can be multiplied, "
                f"found {list(a.shape)} and {list(b.shape)}"
            )
        batch = broadcast(a.shape[:-2], b.shape[:-2])
        return [((*batch, a.shape[-2], b.shape[-1]), a.dtype)]

    def terms(self, ins: Sequence[Tensor | None]) -> int:
        return operand(ins, 0, "first matrix").shape[-1]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        a, b = required(x, 0), required(x, 1)
        if a.dtype == np.float32:
            return [(a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)]
        if a.dtype == np.float16:
            return [half_product(a, b).astype(np.float16)]
        if a.dtype in (np.int8, np.int16):
            left, right = operand(ins, 0, "first matrix"), operand(ins, 1, "second matrix")
            total = quantized.offset(a, left) @ quantized.offset(b, right)
            factor = matrix_multiplier(left, right, outs[0])
            scaled = factor.apply(total) if a.dtype == np.int8 else shortened(total, factor)
            return [quantized.stored(scaled, outs[0])]
        wide = a.astype(np.int64) @ b.astype(np.int64)
        return [wide.astype(a.dtype)]


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
            replace(t, shape=_permuted(t.shape, axes), data=None)
            for t, axes in ((a, self.a_axes), (b, self.b_axes))
        ]
        shape, dtype = super().infer(seen)[0]
        return [(_permuted(shape, self.y_axes), dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        pairs = ((required(x, 0), self.a_axes), (required(x, 1), self.b_axes))
        seen = [v.transpose(axes) if axes else v for v, axes in pairs]
        y = super().reference(seen, ins, outs)[0] * np.asarray(self.scale, seen[0].dtype)
        return [np.ascontiguousarray(y.transpose(self.y_axes) if self.y_axes else y)]


def _permuted(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Permute a shape; empty `axes` mean the identity."""
    return tuple(shape[a] for a in axes) if axes else shape

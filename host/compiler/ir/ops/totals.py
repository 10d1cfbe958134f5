"""Sums, products, extremes and their positions along axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import quantized_elementwise as quantized
from edgekit.host.compiler.ir.checks import (
    need_axis,
    need_dtype,
    need_known_scales,
    need_positive,
    operand,
)
from edgekit.host.compiler.ir.ops.operands import ANY, NUMBERS
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["ArgExtreme", "ReduceMax", "ReduceMin", "ReduceProduct", "ReduceSum", "Total"]


@dataclass(frozen=True)
class Total(Operator):
    """Reduces the elements along `axes` to one value; f32 is computed in f64.

    Unless `on_quantized` is NEVER, 8-bit and 16-bit quantized tensors are reduced as real values.
    """

    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO

    dtypes: ClassVar[tuple[DType, ...]] = NUMBERS
    axes: tuple[int, ...] = ()
    keep_dims: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_known_scales((x,), "input")
        if not x.is_quantized or self.on_quantized is OnQuantized.NEVER:
            need_dtype(x, self.dtypes, "input")
        for axis in self.axes:
            need_axis(axis, len(x.shape))
        if len(set(self.axes)) != len(self.axes):
            raise ShapeError(f"expected distinct axes, found {list(self.axes)}")
        return [(reduced_shape(x.shape, self.axes, self.keep_dims), x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        wide = values.astype(np.float64) if values.dtype == np.float32 else values
        with np.errstate(all="ignore"):
            y = self.combine(wide)
        return [np.asarray(y).astype(values.dtype).reshape(outs[0].shape)]

    def combine(self, x: Array) -> Array:
        raise TypeError(f"{self.kind} has no formula")


@dataclass(frozen=True)
class ReduceSum(Total):
    kind: ClassVar[str] = "reduce_sum"
    on_quantized = OnQuantized.IF_WRITTEN

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        source = operand(ins, 0, "input")
        if source.is_quantized:
            return [quantized.total(required(x, 0), self.axes, source, outs[0])]
        return super().reference(x, ins, outs)

    def combine(self, x: Array) -> Array:
        return np.asarray(np.sum(x, axis=self.axes, dtype=x.dtype))


@dataclass(frozen=True)
class ReduceProduct(Total):
    """s32 products wrap, as in LiteRT, or saturate, as in ONNX Runtime."""

    kind: ClassVar[str] = "reduce_product"
    arithmetic = Arithmetic.ROUNDED
    on_quantized = OnQuantized.IF_WRITTEN
    saturates: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        if x.is_quantized:
            need_positive(x.shape, "input shape")
        return super().infer(ins)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        source = operand(ins, 0, "input")
        if source.is_quantized:
            return [quantized.product(required(x, 0), self.axes, source, outs[0])]
        return super().reference(x, ins, outs)

    def combine(self, x: Array) -> Array:
        if self.saturates and x.dtype == np.int32:
            low, high = _dtype_range(x)
            exact = np.prod(x, axis=self.axes, dtype=np.float64)
            return np.asarray(np.where(exact <= high, np.maximum(exact, low), high))
        return np.asarray(np.prod(x, axis=self.axes, dtype=x.dtype))


def _dtype_range(x: Array) -> tuple[float, float]:
    """Minimum and maximum of the dtype of `x`."""
    if x.dtype.kind in "fb":
        return (-np.inf, np.inf) if x.dtype.kind == "f" else (False, True)
    info = np.iinfo(x.dtype)
    return info.min, info.max


@dataclass(frozen=True)
class ReduceMax(Total):
    kind: ClassVar[str] = "reduce_max"
    arithmetic = Arithmetic.EXACT
    dtypes: ClassVar[tuple[DType, ...]] = ANY

    def combine(self, x: Array) -> Array:
        return np.asarray(np.max(x, axis=self.axes, initial=_dtype_range(x)[0]))


@dataclass(frozen=True)
class ReduceMin(Total):
    kind: ClassVar[str] = "reduce_min"
    arithmetic = Arithmetic.EXACT
    dtypes: ClassVar[tuple[DType, ...]] = ANY

    def combine(self, x: Array) -> Array:
        return np.asarray(np.min(x, axis=self.axes, initial=_dtype_range(x)[1]))


@dataclass(frozen=True)
class ArgExtreme(Operator):
    """Index (s64) of the largest (`smallest`: smallest) value along `axis`, of the first one if
    equal or, with `last`, of the last one. The axis remains, with size 1."""

    kind: ClassVar[str] = "arg_extreme"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    axis: int = 0
    smallest: bool = False
    last: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, ANY, "input")
        need_positive(x.shape, "input shape")
        need_axis(self.axis, len(x.shape))
        return [(reduced_shape(x.shape, (self.axis,), True), DType.I64)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        pick = np.argmin if self.smallest else np.argmax
        size = values.shape[self.axis]
        if self.last:
            found = size - 1 - pick(np.flip(values, self.axis), axis=self.axis)
        else:
            found = pick(values, axis=self.axis)
        return [np.asarray(found).astype(np.int64).reshape(outs[0].shape)]


def reduced_shape(shape: Shape, axes: tuple[int, ...], keep_dims: bool) -> Shape:
    if keep_dims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)

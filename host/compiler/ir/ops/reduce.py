"""Means and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    FLOATS,
    IMAGES,
    need_axis,
    need_dtype,
    need_positive,
    need_scale,
    operand,
)
from edgekit.host.compiler.ir.fixed_point import FRACTION_SCALE, softmax_8bit
from edgekit.host.compiler.ir.ops.totals import reduced_shape
from edgekit.host.compiler.ir.quantization import (
    mean_multiplier,
    quantized_range,
    saturate,
    zero_point_of,
)
from edgekit.host.compiler.ir.softmax_16bit import softmax_16bit
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["Mean", "MeanOfSums", "QuantizedSum", "Softmax", "SoftmaxMean"]

_ROW_LIMIT = 1 << 16  # maximum number of Q15 values whose sum fits 31 bits


@dataclass(frozen=True)
class Mean(Operator):
    kind: ClassVar[str] = "mean"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.RESCALES
    half = Half.YES
    axes: tuple[int, ...] = ()
    keep_dims: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, (*IMAGES, DType.F16), "input")
        need_scale(x, "input")
        need_positive(x.shape, "input shape")
        for axis in self.axes:
            need_axis(axis, len(x.shape))
        if len(set(self.axes)) != len(self.axes):
            raise ShapeError(f"expected distinct axes, found {list(self.axes)}")
        kept = [1 if i in self.axes else d for i, d in enumerate(x.shape)]
        dropped = [d for i, d in enumerate(x.shape) if i not in self.axes]
        return [(tuple(kept if self.keep_dims else dropped), x.dtype)]

    def keeps_factors(self, ins: Sequence[Tensor | None]) -> bool:
        return self.axes == (1, 2) and len(operand(ins, 0, "input").shape) == 4

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, source, out = required(x, 0), operand(ins, 0, "input"), outs[0]
        count = math.prod(values.shape[a] for a in self.axes)
        if out.dtype in FLOATS:
            total = values.sum(axis=self.axes, dtype=np.float64)
            return [(total / count).astype(out.dtype.numpy).reshape(out.shape)]
        offset = values.astype(np.int64) - zero_point_of(source)
        mean = mean_multiplier(source, out, count).apply(offset.sum(axis=self.axes))
        low, high = quantized_range(out.dtype)
        return [saturate(mean, zero_point_of(out), low, high, out.dtype).reshape(out.shape)]


@dataclass(frozen=True)
class QuantizedSum(Operator):
    """Exact sums of quantized values along `axes`, without zero points and in the same scale;
    dimensions are kept. Splitting creates it from a mean whose operand must not exist as a
    whole."""

    kind: ClassVar[str] = "quantized_sum"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    axes: tuple[int, ...] = ()

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        ((shape, _),) = Mean(self.axes, keep_dims=True).infer(ins)
        need_dtype(x, (DType.I8, DType.U8, DType.I16), "input")
        return [(shape, DType.I32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        offset = required(x, 0).astype(np.int64) - zero_point_of(operand(ins, 0, "input"))
        return [offset.sum(axis=self.axes, keepdims=True).astype(np.int32)]


@dataclass(frozen=True)
class MeanOfSums(Operator):
    """The mean of `count` quantized values from their sums (QuantizedSum) along `axes`, as
    quantized values of `dtype`."""

    kind: ClassVar[str] = "mean_of_sums"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    axes: tuple[int, ...] = ()
    keep_dims: bool = False
    count: int = 1
    dtype: DType = DType.I8

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, (DType.I32,), "input")
        for axis in self.axes:
            need_axis(axis, len(x.shape))
        return [(reduced_shape(x.shape, self.axes, self.keep_dims), self.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        source, out = operand(ins, 0, "input"), outs[0]
        total = required(x, 0).astype(np.int64).sum(axis=self.axes)
        mean = mean_multiplier(source, out, self.count).apply(total)
        low, high = quantized_range(out.dtype)
        return [saturate(mean, zero_point_of(out), low, high, out.dtype).reshape(out.shape)]


@dataclass(frozen=True)
class Softmax(Operator):
    """Softmax of beta·x over the last axis."""

    kind: ClassVar[str] = "softmax"
    elementwise = False
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "function"
    on_quantized = OnQuantized.RESCALES
    half = Half.WIDENED
    fixed_quantization = (FRACTION_SCALE, -128)
    beta: float = 1.0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, (*IMAGES, DType.F16), "input")
        need_scale(x, "input")
        if not x.shape:
            raise ShapeError("expected an input of rank 1 or more, found a scalar")
        need_positive(x.shape[-1:], "rows")
        if x.dtype is DType.I16 and x.shape[-1] > _ROW_LIMIT:
            raise ShapeError(f"expected rows of at most {_ROW_LIMIT}, found {x.shape[-1]}")
        if not (math.isfinite(self.beta) and self.beta > 0):
            raise ShapeError(f"expected a positive beta, found {self.beta}")
        return [(x.shape, x.dtype)]

    def works_by_rows(self) -> bool:
        return True

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        if outs[0].dtype is DType.I16:
            return [softmax_16bit(values, operand(ins, 0, "input"), self.beta)]
        if outs[0].dtype not in FLOATS:
            return [softmax_8bit(values, operand(ins, 0, "input"), outs[0], self.beta)]
        real = values.astype(np.float64)
        powers = np.exp((real - real.max(axis=-1, keepdims=True)) * self.beta)
        return [(powers / powers.sum(axis=-1, keepdims=True)).astype(values.dtype)]


@dataclass(frozen=True)
class SoftmaxMean(Operator):
    """The mean of `values` for each row of x f32 or f16 (last axis), weighted by softmax(beta·x):
    distances to the sides of a box, of which detectors predict distributions (Li et al., 2020).

    Created by the compiler. The output has the type of x; the last axis is 1, or dropped.
    """

    kind: ClassVar[str] = "softmax_mean"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "function"
    on_quantized = OnQuantized.NEVER
    half = Half.WIDENED
    values: tuple[float, ...] = ()
    beta: float = 1.0
    keep_dims: bool = True

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, FLOATS, "input")
        need_positive(x.shape[-1:], "rows")
        if x.shape[-1:] != (len(self.values),):
            raise ShapeError(f"expected rows of {len(self.values)}, found {list(x.shape)}")
        if not (math.isfinite(self.beta) and self.beta > 0):
            raise ShapeError(f"expected a positive beta, found {self.beta}")
        return [((*x.shape[:-1], 1) if self.keep_dims else x.shape[:-1], x.dtype)]

    def works_by_rows(self) -> bool:
        return self.keep_dims

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        rows = required(x, 0)
        real = rows.astype(np.float64)
        powers = np.exp((real - real.max(axis=-1, keepdims=True)) * self.beta)
        mean = powers @ np.array(self.values) / powers.sum(axis=-1)
        return [mean.astype(rows.dtype).reshape(outs[0].shape)]

"""Conversions of element types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    IMAGES,
    need_dtype,
    need_positive,
    need_rank,
    need_scale,
    operand,
)
from edgekit.host.compiler.ir.quantization import (
    dequantize,
    quantized_range,
    rescale_multiplier,
    round_half_away,
    saturate,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.sums import quantize_asymmetric, quantize_symmetric, required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["Cast", "FakeQuantize", "Quantize", "QuantizeRows"]


@dataclass(frozen=True)
class Quantize(Operator):
    """f32 or quantized → quantized, with the output tensor's scale and zero point.

    f32 values are rounded to nearest, halves away from zero or, with `to_even`, to even (ONNX).
    Quantized values are multiplied by LiteRT's fixed-point factor, which may round twice, or, with
    `to_even`, dequantized and quantized in f32.
    """

    kind: ClassVar[str] = "quantize"
    elementwise = True
    arithmetic = Arithmetic.EXACT
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    to: DType = DType.I8
    to_even: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, IMAGES, "input")
        need_scale(x, "input")
        if self.to not in IMAGES[1:]:
            raise ShapeError(f"expected an output of type s8, u8 or s16, found {self.to.value}")
        return [(x.shape, self.to)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, source, out = required(x, 0), operand(ins, 0, "input"), outs[0]
        low, high = quantized_range(out.dtype)
        zero = zero_point_of(out)
        if source.dtype is DType.F32 or self.to_even:
            nearest = np.rint if self.to_even else round_half_away
            # Floats may name the quantization that they came from.
            known = source.quant if source.dtype is not DType.F32 else None
            reals = values if known is None else dequantize(values, known)
            scaled = nearest(reals / np.float32(scale_of(out))) + np.float32(zero)
            return [np.clip(scaled, low, high).astype(out.dtype.numpy)]
        offset = values.astype(np.int64) - zero_point_of(source)
        quantized = rescale_multiplier(source, out).apply(offset)
        return [saturate(quantized, zero, low, high, out.dtype)]


@dataclass(frozen=True)
class Cast(Operator):
    """Conversion to f32 from f16, or dequantization if the input has a scale."""

    kind: ClassVar[str] = "cast"
    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    to: DType = DType.F32

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        if self.to is not DType.F32:
            raise ShapeError(f"expected an output of type f32, found {self.to.value}")
        return [(x.shape, self.to)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, source = required(x, 0), operand(ins, 0, "input")
        if source.quant is not None:
            return [dequantize(values, source.quant)]
        return [values.astype(self.to.numpy)]


@dataclass(frozen=True)
class FakeQuantize(Operator):
    """Rounds each f32 row of x [m, k] to s8 quantization of its own range, which includes 0.

    Products of the result with dequantized weights equal TFLite's dynamic-range products with
    asymmetric inputs, except for the rounding of sums.
    """

    kind: ClassVar[str] = "fake_quantize"
    elementwise = False
    arithmetic = Arithmetic.QUANTIZED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, (DType.F32,), "input")
        need_rank(x, 2, "input")
        return [(x.shape, DType.F32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        rows = quantize_asymmetric(required(x, 0))
        return [rows.values.astype(np.float32) * rows.scale[:, None]]


@dataclass(frozen=True)
class QuantizeRows(Operator):
    """x f32 [m, k] → values s8 [m, k] and scales f32 [m, 1]: each row by its largest magnitude,
    halves away from zero. Rows whose values are all below 1e-30 become 0, with scale 1."""

    kind: ClassVar[str] = "quantize_rows"
    elementwise = False
    arithmetic = Arithmetic.QUANTIZED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, (DType.F32,), "input")
        need_rank(x, 2, "input")
        need_positive(x.shape, "input")
        return [(x.shape, DType.I8), ((x.shape[0], 1), DType.F32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        rows = required(x, 0)
        small = np.abs(rows).max(axis=1, keepdims=True) < np.float32(1e-30)
        made = quantize_symmetric(np.where(small, np.float32(0), rows))
        return [made.values.astype(np.int8), made.scale[:, None]]

"""Products and convolutions that quantize a complete float tensor at run time.

This is ONNX's dynamic quantization.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import sums
from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_positive,
    need_rank,
    need_scales_of_rows,
    need_shape,
    operand,
)
from edgekit.host.compiler.ir.checks import optional as optional_operand
from edgekit.host.compiler.ir.ops.conv import Conv2D
from edgekit.host.compiler.ir.quantization import zero_points_of
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Padding,
    Shape,
    ShapeError,
    Tensor,
)

__all__ = ["DynamicConv2D", "DynamicFullyConnected"]


@dataclass(frozen=True)
class DynamicFullyConnected(Operator):
    """ins: x f32 [..., k], weights s8 or u8 [n,k] with scales and zero points (one, or n along
    axis 0), bias f32 [n] or None; the output is f32 [..., n].

    x is quantized to u8 with a single scale and zero point from its total range (extended to
    include 0), rounding halves to even. This fuses ONNX's DynamicQuantizeLinear, MatMulInteger and
    the scaling after it. Sums are exact.
    """

    kind: ClassVar[str] = "dynamic_fully_connected"
    elementwise = False
    arithmetic = Arithmetic.QUANTIZED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    quantized_weights = True
    multiplies = True
    weight_axis = 0
    activation: Activation = Activation.NONE

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w = operand(ins, 0, "input"), operand(ins, 1, "weights")
        bias = optional_operand(ins, 2)
        need_dtype(x, (DType.F32,), "input")
        need_dtype(w, (DType.I8, DType.U8), "weights")
        need_rank(w, 2, "weights")
        need_positive((*x.shape, *w.shape), "input and weights")
        n, k = w.shape
        if x.shape[-1:] != (k,):
            raise ShapeError(f"expected rows of {k} values, found input {list(x.shape)}")
        need_scales_of_rows(w)
        if bias is not None:
            need_shape(bias, (n,), "bias")
            need_dtype(bias, (DType.F32,), "bias")
        return [((*x.shape[:-1], n), DType.F32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        w = operand(ins, 1, "weights")
        assert w.quant is not None
        quantized, scale = quantize_whole(sums.required(x, 0))
        weights = sums.required(x, 1).astype(np.float64) - zero_points_of(w)
        total = quantized.astype(np.float64) @ weights.T
        y = total.astype(np.float32) * (w.quant.scale.astype(np.float32) * scale)
        bias = sums.optional(x, 2)
        y = y if bias is None else y + bias
        return [sums.clamp_float(y.astype(np.float32), self.activation)]


@dataclass(frozen=True)
class DynamicConv2D(Operator):
    """ins: x f32 [n,h,w,ic], weights s8 or u8 [oc,kh,kw,ic] with scales and zero points (one, or oc
    along axis 0), bias f32 [oc] or None; the output is f32 [n,oh,ow,oc].

    x is quantized as in DynamicFullyConnected, with one scale for all images; padding is 0. This
    corresponds to ONNX's ConvInteger.
    """

    kind: ClassVar[str] = "dynamic_conv2d"
    elementwise = False
    arithmetic = Arithmetic.QUANTIZED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    quantized_weights = True
    multiplies = True
    weight_axis = 0
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    activation: Activation = Activation.NONE

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w = operand(ins, 0, "input"), operand(ins, 1, "weights")
        need_dtype(x, (DType.F32,), "input")
        need_dtype(w, (DType.I8, DType.U8), "weights")
        need_rank(w, 4, "weights")
        need_positive((*x.shape, *w.shape), "input and weights")
        need_scales_of_rows(w)
        return self._static_conv.infer([x, _of_floats(w), optional_operand(ins, 2)])

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        w = operand(ins, 1, "weights")
        assert w.quant is not None
        quantized, scale = quantize_whole(sums.required(x, 0))
        points = zero_points_of(w).reshape(-1, 1, 1, 1)
        weights = (sums.required(x, 1).astype(np.int64) - points).astype(np.float32)
        tensors = [operand(ins, 0, "input"), _of_floats(w)]
        [total] = self._static_conv.reference([quantized, weights], tensors, outs)
        y = total * (w.quant.scale.astype(np.float32) * scale)
        bias = sums.optional(x, 2)
        y = y if bias is None else y + bias
        return [sums.clamp_float(y.astype(np.float32), self.activation)]

    @property
    def _static_conv(self) -> Conv2D:
        return Conv2D(self.stride, self.dilation, self.padding)


def _of_floats(t: Tensor) -> Tensor:
    return dataclasses.replace(t, dtype=DType.F32, quant=None, data=None)


def quantize_whole(x: Array) -> tuple[Array, np.float32]:
    """Quantize x; returns values without zero point, in [-255, 255], and their scale.

    For an x of all zeros, ONNX defines a scale of 0; here it is 1, as in ONNX Runtime.
    """
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.clip(np.rint(x / scale) + zero, 0, 255) - zero, np.float32(scale)

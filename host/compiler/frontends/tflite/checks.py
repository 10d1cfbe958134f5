"""Checks on quantized tensors that involve both inputs and outputs of an operator."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.fixed_point import FRACTION_SCALE, softmax_factor
from edgekit.host.compiler.ir.quantization import (
    Multiplier,
    add_multipliers,
    convolution_multiplier,
    dense_multiplier,
    mean_multiplier,
    quantized_range,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.softmax_16bit import difference_factor
from edgekit.host.compiler.ir.traits import OnQuantized
from edgekit.host.compiler.ir.types import DType, Operator, ShapeError, Tensor

_CONVOLUTIONS = ops.Conv2D | ops.DepthwiseConv2D | ops.TransposeConv2D | ops.Conv2D16x8
_LARGEST_SHIFT = 16  # of sums: 8-bit values · 2^16 · 2^7 still fit in int32
_LARGEST_DIFFERENCE_SHIFT = 15  # 16-bit differences · 2^15 still fit in int32
_LARGEST_WIDE_SHIFT = 7  # LiteRT's limit for s64 sums


def check_quantized(op: Operator, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> None:
    """Raises `ShapeError` if quantization violates the format or the kernels' assumptions."""
    if isinstance(op, _CONVOLUTIONS | ops.FullyConnected) and ins[1] is not None:
        _check_weights(op, ins[1])
    if isinstance(op, ops.Logistic) and _is_quantized(ins, outs):
        assert ins[0] is not None
        _check_fraction(op, ins[0], outs[0])
    check_scales(op, ins, outs)


def check_scales(op: Operator, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> None:
    """Raises `ShapeError` if quantization, except of weights, violates the kernels' assumptions."""
    tensors = [t for t in ins if t is not None]
    if isinstance(op, ops.Conv2D16x8):
        _check_wide(tensors, outs[0])
    if isinstance(op, ops.Softmax) and outs and outs[0].dtype is DType.I16:
        _check_fraction_16(op, tensors[0], outs[0])
    if outs:
        _check_all_have_scales(op, [t for t in (*tensors, *outs) if t.dtype is outs[0].dtype])
    if not _is_quantized(tensors, outs):
        return
    if isinstance(op, ops.Concat) and all(t.quant is None for t in (*tensors, outs[0])):
        return
    if isinstance(op, ops.Softmax):
        _check_fraction(op, tensors[0], outs[0])
    if isinstance(op, ops.Clamp | ops.Concat | ops.Mul | ops.Quantize):
        for t in (*tensors, outs[0]):
            scale_of(t)  # raises if there is none
    for factor in _output_multipliers(op, tensors, outs[0]):
        if factor.shift.max() > _LARGEST_SHIFT:
            raise ShapeError(
                f"expected a ratio of scales below 2^{_LARGEST_SHIFT}, found one of "
                f"about 2^{factor.shift.max()}"
            )


def _is_quantized(ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> bool:
    first = next((t for t in ins if t is not None), None)
    if first is None or not outs:
        return False
    return outs[0].dtype.is_quantized and first.dtype.is_quantized


def _check_all_have_scales(op: Operator, tensors: Sequence[Tensor]) -> None:
    """Quantized tensors have a scale in all operands and results of an operator that rescales, or
    in none."""
    rescales = op.elementwise and op.on_quantized in (OnQuantized.IF_WRITTEN, OnQuantized.RESCALES)
    if rescales and any(t.quant for t in tensors):
        for t in tensors:
            scale_of(t)


def _check_weights(op: Operator, weights: Tensor) -> None:
    if weights.dtype is DType.F32:
        return
    quant, axis = weights.quant, op.weight_axis or 0
    if quant is None:
        raise ShapeError("expected weights with a scale, found none")
    if quant.per_channel and quant.axis != axis:
        raise ShapeError(
            f"expected one scale per output channel, found scales on axis {quant.axis}"
        )
    if quant.per_channel and weights.dtype is DType.U8:
        raise ShapeError(f"expected one scale for u8 weights, found {quant.scale.size}")
    low, high = (0, 0) if weights.dtype is DType.I8 else quantized_range(weights.dtype)
    if quant.zero_point.min() < low or quant.zero_point.max() > high:
        raise ShapeError(
            f"expected {weights.dtype.value} weights with zero points from {low} to {high}, "
            f"found {quant.zero_point.min()} to {quant.zero_point.max()}"
        )


def _check_wide(ins: list[Tensor], y: Tensor) -> None:
    for t, what in ((ins[0], "input"), (y, "output")):
        if not t.is_quantized or zero_point_of(t) != 0:
            raise ShapeError(f"expected an {what} with one scale and zero point 0, found another")
    shift = convolution_multiplier(ins[0], ins[1], y).shift.max()
    if shift > _LARGEST_WIDE_SHIFT:
        raise ShapeError(
            f"expected a ratio of scales below 2^{_LARGEST_WIDE_SHIFT}, found about 2^{shift}"
        )


def _check_fraction_16(op: ops.Softmax, x: Tensor, y: Tensor) -> None:
    _need_fraction(y, 1 / 32768, 0)
    if difference_factor(x, op.beta).shift.max() > _LARGEST_DIFFERENCE_SHIFT:
        raise ShapeError(f"expected an input scale below 5, found {scale_of(x)}")


def _need_fraction(y: Tensor, scale: float, zero: int) -> None:
    fits = y.is_quantized and math.isclose(scale_of(y), scale, rel_tol=1e-3)
    if not fits or zero_point_of(y) != zero:
        raise ShapeError(
            f"expected an output of scale 1/{round(1 / scale)} and zero point {zero}, found another"
        )


def _check_fraction(op: Operator, x: Tensor, y: Tensor) -> None:
    low, _ = quantized_range(y.dtype)
    _need_fraction(y, FRACTION_SCALE, low)
    # Coarse scales, which masks of -3e38 produce, are also correct: factors saturate at 2^31.
    if isinstance(op, ops.Softmax) and not softmax_factor(x, op.beta) > 1.0:
        raise ShapeError(f"expected an input scale of at least 1e-7, found {scale_of(x)}")


def _output_multipliers(op: Operator, ins: list[Tensor], y: Tensor) -> list[Multiplier]:
    if isinstance(op, _CONVOLUTIONS):
        return [convolution_multiplier(ins[0], ins[1], y)]
    if isinstance(op, ops.FullyConnected):
        return [dense_multiplier(ins[0], ins[1], y)]
    if isinstance(op, ops.Add):
        return [add_multipliers(ins[0], ins[1], y).output]
    if isinstance(op, ops.Mean):
        return [mean_multiplier(ins[0], y, 1)]
    return []

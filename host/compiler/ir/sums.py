"""Common code of all products with weights: operand preparation, sums and post-processing.

Sums are computed in f64, which is exact for 8-bit operands and more accurate than f32 in any order.
(Depthwise convolutions and pools add in f32 in TFLite's order: see there.) Sums of f16 are rounded
to f16 after each product, as on boards (long sums consist of sums of runs), and the bias is added
last. f32 with s8 weights ("hybrid", dynamic range) quantizes x first, like TFLite.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.kernel_facts import HALF_RUN, HALF_SUMS
from edgekit.host.compiler.ir.quantization import (
    I64,
    activation_range,
    round_half_away,
    saturate,
    zero_point_of,
    zero_points_of,
)
from edgekit.host.compiler.ir.types import Activation, Array, DType, Operator, Tensor

F64 = NDArray[np.float64]
F32 = NDArray[np.float32]
Rescale = Callable[[Array], I64]

HALF_LONG = 160  # f16 sums with more products consist of sums of HALF_RUN, added in f16
_SPLIT = np.float32((1 << 13) + 1)  # splits f32's 24 bits into the upper 11 (f16) and lower 13
_BLOCK = 1 << 15  # number of sums that stay in cache while products are added


@dataclass(frozen=True, eq=False)
class SumOperands:
    """x and weights without zero points, in f64; `scale` is the hybrid path's factor.

    `scale` has shape [n] (per image or row) or [n, oc] (also per output channel).
    """

    x: F64
    weights: F64
    scale: F32 | None = None


@dataclass(frozen=True, eq=False)
class QuantizedRows:
    """Integers without their zero point, and the scale of each row."""

    values: Array
    scale: F32


def is_hybrid(x: Tensor, weights: Tensor) -> bool:
    return x.dtype is DType.F32 and weights.dtype is DType.I8


def operands(values: Sequence[Array | None], ins: Sequence[Tensor | None]) -> SumOperands:
    x, w = required(values, 0), required(values, 1)
    x_tensor, w_tensor = ins[0], ins[1]
    assert x_tensor is not None and w_tensor is not None
    if is_hybrid(x_tensor, w_tensor):
        assert w_tensor.quant is not None
        rows = quantize_symmetric(x)
        channel = w_tensor.quant.scale.reshape(-1)
        factor = rows.scale[:, None] * channel[None, :]
        scale = factor if w_tensor.quant.per_channel else factor[:, 0]
        return SumOperands(rows.values.astype(np.float64), w.astype(np.float64), scale)
    if x_tensor.dtype.is_float:
        return SumOperands(x.astype(np.float64), w.astype(np.float64))
    return SumOperands(
        x.astype(np.float64) - zero_point_of(x_tensor),
        w.astype(np.float64) - zero_points_of(w_tensor),
    )


def required(values: Sequence[Array | None], index: int) -> Array:
    value = values[index]
    assert value is not None, f"input {index} is required"
    return value


def optional(values: Sequence[Array | None], index: int) -> Array | None:
    return values[index] if index < len(values) else None


def quantize_symmetric(x: F32) -> QuantizedRows:
    """Quantize each image (or row) of x to s8 in [−127, 127] by its largest magnitude, in f32."""
    flat = x.reshape(x.shape[0], -1)
    largest = np.abs(flat).max(axis=1, keepdims=True)
    safe = np.where(largest == 0, np.float32(127), largest).astype(np.float32)
    scaled = round_half_away(flat * (np.float32(127) / safe))
    quantized = np.clip(scaled, -127, 127).astype(np.int32)
    return QuantizedRows(quantized.reshape(x.shape), (safe / np.float32(127))[:, 0])


def quantize_asymmetric(x: F32) -> QuantizedRows:
    """Quantize each image of x to s8 by its range, including 0; returns it without zero point."""
    flat = x.reshape(x.shape[0], -1)
    low = np.minimum(flat.min(axis=1, keepdims=True), np.float32(0))
    high = np.maximum(flat.max(axis=1, keepdims=True), np.float32(0))
    empty = low == high
    # LiteRT's precision: the span is rounded to f32, zero points to f64, values to f32.
    step = np.where(empty, 1.0, (high - low).astype(np.float64) / 255.0)
    from_low, from_high = -128.0 - low / step, 127.0 - high / step
    low_error, high_error = 128.0 + np.abs(low / step), 127.0 + np.abs(high / step)
    zero = round_half_away(np.where(low_error < high_error, from_low, from_high))
    zero = np.where(empty, 0.0, np.clip(zero, -128, 127))
    scale = step.astype(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    steps = np.clip(round_half_away(flat * inverse), -128 - zero, 127 - zero)
    quantized = np.where(empty, 0, steps.astype(np.int32))
    return QuantizedRows(quantized.reshape(x.shape), scale[:, 0])


def product(x: Array, weights: Array, dtype: DType) -> Array:
    """x @ weights, both of `dtype`."""
    if dtype is not DType.F16:
        return x @ weights
    at_once = HALF_RUN if len(weights) > HALF_LONG else max(len(weights), 1)
    return half_rows(x.astype(np.float32), weights.astype(np.float32), at_once)


def half_rows(rows: F32, weights: F32, at_once: int) -> F32:
    """rows @ weights: `at_once` products at a time are summed in f16, and then their sums."""
    total = np.zeros((len(rows), weights.shape[1]), np.float32)
    step = max(_BLOCK // max(weights.shape[1], 1), 1)
    for top, first in itertools.product(range(0, len(rows), step), range(0, len(weights), at_once)):
        part, some = slice(top, top + step), slice(first, first + at_once)
        summed = np.zeros_like(total[part])
        terms = np.empty_like(summed)
        for column, row in zip(rows[part, some].T, weights[some], strict=True):
            np.multiply(column[:, None], row, out=terms)
            add_half(summed, terms)
        add_half(total[part], summed)
    return total


def half_product(a: Array, b: Array) -> F32:
    """Batched f16 matrix product: HALF_SUMS products at a time are summed in f16, their sums in
    f32."""
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = a.astype(np.float32), b.astype(np.float32)
    total = np.zeros((*shape, a.shape[-2], b.shape[-1]), np.float32)
    for first in range(0, a.shape[-1], HALF_SUMS):
        some = np.zeros_like(total)
        for p in range(first, min(first + HALF_SUMS, a.shape[-1])):
            add_half(some, left[..., :, p, None] * right[..., None, p, :])
        total += some
    return total


def add_half(total: F32, terms: F32) -> None:
    """Add `terms` (overwritten) to `total` and round to f16 precision."""
    total += terms
    wide = total * _SPLIT
    np.subtract(wide, total, out=terms)
    np.subtract(wide, terms, out=total)


def finish_float(
    total: F64, scale: F32 | None, extra: Sequence[Array | None], dtype: DType = DType.F32
) -> F32:
    """Rounds the sum to `dtype`, applies the hybrid factor, and adds `extra` (bias, residual)."""
    y: F32 = total.astype(dtype.numpy)
    if scale is not None:
        between = (1,) * (total.ndim - 2)
        y = y * scale.reshape(scale.shape[0], *between, *(scale.shape[1:] or (1,)))
    for term in extra:
        if term is not None:
            y = y + term
    return y


def clamp_float(y: F32, activation: Activation) -> F32:
    low, high = activation.bounds
    return y if activation is Activation.NONE else np.clip(y, y.dtype.type(low), y.dtype.type(high))


def hard_swish(x: F32) -> F32:
    """x · relu6(x + 3) / 6; f16 is rounded after each step, like in the kernels."""
    if x.dtype == np.float16:
        kind = x.dtype.type
        halves: F32 = x * (np.clip(x + kind(3), kind(0), kind(6)) * kind(1 / 6))
        return halves
    gate = np.clip(x + np.float32(3), np.float32(0), np.float32(6))
    y: F32 = (x * gate / np.float32(6)).astype(np.float32)
    return y


def is_per_channel(operand: Tensor, out: Tensor) -> bool:
    """Whether an operand has one value, or one per channel of `out`."""
    fits = len(operand.shape) <= len(out.shape) and operand.elements in (1, out.shape[-1])
    return fits and operand.shape[-1:] in ((), (operand.elements,))


def apply_epilogue(
    epilogue: Operator | None,
    y: Array,
    x: Sequence[Array | None],
    ins: Sequence[Tensor | None],
    out: Tensor,
) -> Array:
    """Apply the epilogue to a product's result y; its own operand is the fifth input."""
    if epilogue is None:
        return y
    return epilogue.reference([y, *x[4:5]], [out, *ins[4:5]], [out])[0]


def finish_quantized(
    total: F64, bias: Array | None, rescale: Rescale, out: Tensor, activation: Activation
) -> Array:
    """Add the bias, rescale to the output's units with `rescale`, clamp and convert."""
    sums = total.astype(np.int64)
    if bias is not None:
        sums = sums + bias
    low, high = activation_range(activation, out)
    return saturate(rescale(sums), zero_point_of(out), low, high, out.dtype)

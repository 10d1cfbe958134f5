"""The integer arithmetic of quantized models, bit-exact with TFLite's reference kernels.

A real factor becomes a 31-bit multiplier and a power of two (`Multiplier`). Applying it rounds
twice: in the doubling high multiply and in the right shift. Fully connected layers round once
(LiteRT ≥ 2; tflite-runtime 2.14 rounds twice there too). The board's kernels do the same. Both the
NumPy references and the lowering use this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Quant,
    ShapeError,
    Tensor,
)

I64 = NDArray[np.int64]

_I32_MIN, _I32_MAX = -(2**31), 2**31 - 1
_RANGES = {
    DType.I8: (-128, 127),
    DType.U8: (0, 255),
    DType.I16: (-32768, 32767),
    DType.U16: (0, 65535),
    DType.I32: (_I32_MIN, _I32_MAX),
}


@dataclass(frozen=True, eq=False)
class Multiplier:
    """Factors multiplier · 2^(shift−31), one per tensor or per channel (of the last axis)."""

    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]

    @property
    def negative(self) -> Multiplier:
        return Multiplier(-self.multiplier, self.shift)

    def apply(self, x: Array) -> I64:
        """x (integers that fit int32) times the factor, rounded twice.

        What is shifted left out of 32 bits is lost, as in LiteRT and on the board.
        """
        left = np.maximum(self.shift, 0).astype(np.int64)
        right = np.maximum(-self.shift, 0).astype(np.int64)
        scaled = (x.astype(np.int64) << left).astype(np.int32)
        return rounding_shift(doubling_high_multiply(scaled, self.multiplier), right)

    @property
    def unshifted(self) -> Multiplier:
        """The factor without a right shift, so that `apply` rounds once. Results differ from the
        exact product by at most 2^-32 of the sum more."""
        right = np.maximum(-self.shift.astype(np.int64), 0)
        multiplier = (self.multiplier.astype(np.int64) + ((1 << right) >> 1)) >> right
        return Multiplier(multiplier.astype(np.int32), np.maximum(self.shift, 0))

    def apply_rounding_once(self, x: Array) -> I64:
        """x (integers that fit int32) times the factor, rounded once, halves away from zero."""
        right = 31 - self.shift.astype(np.int64)
        product = x.astype(np.int64) * self.multiplier
        rounded: I64 = (product + (np.int64(1) << (right - 1)) - (product < 0)) >> right
        return rounded


def quantize_multiplier(real: float) -> tuple[int, int]:
    """(multiplier, shift) with real ≈ multiplier · 2^(shift−31); multiplier in [2^30, 2^31)."""
    found = multiplier_of(real)
    return int(found.multiplier[0]), int(found.shift[0])


def multiplier_of(reals: Array | float) -> Multiplier:
    """`quantize_multiplier` of one factor or of each of a vector (f64)."""
    values = np.atleast_1d(np.asarray(reals, np.float64))
    most = np.isinf(values)  # a quotient of a tiny scale
    fraction, shift = np.frexp(np.where(most, 1.0, values))
    multiplier = np.floor(fraction * 2.0**31 + 0.5)
    carried = multiplier == 2.0**31
    multiplier, shift = np.where(carried, 2.0**30, multiplier), shift + carried
    none, most = shift < -31, most | (shift > 31)
    multiplier = np.where(none, 0, np.where(most, _I32_MAX, multiplier))
    return Multiplier(
        multiplier.astype(np.int32), np.where(none, 0, np.where(most, 31, shift)).astype(np.int32)
    )


def short_factor(factor: Multiplier) -> tuple[I64, I64]:
    """Approximation as (16-bit multiplier, right shift)."""
    wide = factor.multiplier.astype(np.int64)
    short = np.where(wide < 0x7FFF0000, (wide + (1 << 15)) >> 16, 0x7FFF)
    return short, 15 - factor.shift.astype(np.int64)


def shortened(total: Array, factor: Multiplier) -> I64:
    """s64 sums times the 16-bit factor, rounded once."""
    multiplier, right = short_factor(factor)
    rounded: I64 = (total * multiplier + (np.int64(1) << (right - 1))) >> right
    return rounded


def doubling_high_multiply(a: Array, b: Array | int) -> I64:
    """(2·a·b) >> 32 of int32 values, rounded to nearest, halves away from zero for a·b > 0."""
    product = a.astype(np.int64) * np.asarray(b, np.int64)
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = nudged >> 31
    # C division truncates: add one if a negative dividend leaves a remainder.
    high += (nudged < 0) & ((nudged & _I32_MAX) != 0)
    capped: I64 = np.minimum(high, _I32_MAX)
    return capped


def rounding_shift(x: I64, exponent: I64 | int) -> I64:
    """x / 2^exponent, rounded to nearest, halves away from zero."""
    exponent = np.asarray(exponent, np.int64)
    mask = (np.int64(1) << exponent) - 1
    threshold = (mask >> 1) + (x < 0)
    shifted: I64 = (x >> exponent) + ((x & mask) > threshold)
    return shifted


def round_half_away(x: Array) -> Array:
    """Nearest integer, halves away from zero (C's `round`), in the dtype of x."""
    whole = np.trunc(x)
    step = np.where(np.abs(x - whole) >= 0.5, np.copysign(1, x), 0)
    rounded: Array = whole + step.astype(x.dtype)
    return rounded


def quantized_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest stored value of an integer dtype."""
    return _RANGES[dtype]


def scale_of(t: Tensor) -> float:
    """The per-tensor scale of a quantized tensor."""
    return float(_require_quant(t).scale.flat[0])


def zero_point_of(t: Tensor) -> int:
    """The per-tensor zero point of a quantized tensor."""
    return int(_require_quant(t).zero_point.flat[0])


def zero_points_of(t: Tensor) -> Array:
    """The zero point of a quantized tensor as a scalar or, if channels differ, as an array that
    broadcasts to the tensor."""
    points = _require_quant(t).zero_point
    if not np.ptp(points):
        return np.asarray(zero_point_of(t))
    return points.reshape(-1, *(1,) * (len(t.shape) - 1 - _require_quant(t).axis))


def same_quantization(a: Tensor, b: Tensor) -> bool:
    """Whether both tensors have the same quantization."""
    if not (a.is_quantized and b.is_quantized):
        return a.is_quantized is b.is_quantized
    return (scale_of(a), zero_point_of(a)) == (scale_of(b), zero_point_of(b))


def _require_quant(t: Tensor) -> Quant:
    if t.quant is None:
        raise ShapeError(f"expected {t.dtype.value} values with a scale, found plain ones")
    return t.quant


def activation_range(activation: Activation, y: Tensor) -> tuple[int, int]:
    """Bounds of a fused activation in stored units of the quantized output `y`."""
    low, high = quantized_range(y.dtype)
    scale, zero = np.float32(scale_of(y)), zero_point_of(y)

    def code(real: float) -> int:
        with np.errstate(all="ignore"):  # a tiny scale puts all bounds out of range
            steps = round_half_away(np.asarray(np.float32(real) / scale))
        return zero + int(np.clip(steps, low - zero, high - zero))

    lower, upper = activation.bounds
    if not math.isinf(lower):
        low = max(low, code(lower))
    if not math.isinf(upper):
        high = min(high, code(upper))
    return low, high


def convolution_multiplier(x: Tensor, weights: Tensor, y: Tensor) -> Multiplier:
    """Factor from int32 sums to `y`: per output channel, or a single one for per-tensor weights.

    TFLite rounds the product of the scales to f32 only for u8.
    """
    if x.dtype is DType.U8:
        scales = _require_quant(weights).scale.astype(np.float32).reshape(-1)
        product = np.float32(scale_of(x)) * scales
        factor = multiplier_of(product.astype(np.float64) / scale_of(y))
    else:
        per_channel = _require_quant(weights).scale.astype(np.float64).reshape(-1)
        factor = multiplier_of(scale_of(x) * per_channel / scale_of(y))
    return rounded_for(y, factor)


def rounded_for(y: Tensor, factor: Multiplier) -> Multiplier:
    return factor.unshifted if _require_quant(y).rounds_once else factor


def dense_multiplier(x: Tensor, weights: Tensor, y: Tensor) -> Multiplier:
    """Factor of fully connected layers."""
    scale = _require_quant(weights).scale.reshape(-1)
    return multiplier_of(scale_of(x) * scale.astype(np.float64) / scale_of(y))


def matrix_multiplier(a: Tensor, b: Tensor, y: Tensor) -> Multiplier:
    """Factor of products of two computed matrices, whose scales are multiplied in f32."""
    product = np.float32(scale_of(a)) * np.float32(scale_of(b))
    return rounded_for(y, multiplier_of(float(product) / scale_of(y)))


@dataclass(frozen=True, eq=False)
class AddMultipliers:
    """y = output((a−za)·2^s scaled by `a` + (b−zb)·2^s scaled by `b`) + zy, s = `add_shift`."""

    a: Multiplier
    b: Multiplier
    output: Multiplier


def add_shift(y: Tensor) -> int:
    """Left shift of both addition operands before rescaling, for precision."""
    return 15 if y.dtype is DType.I16 else 20


def add_multipliers(a: Tensor, b: Tensor, y: Tensor) -> AddMultipliers:
    twice_max = 2.0 * max(scale_of(a), scale_of(b))
    return AddMultipliers(
        multiplier_of(scale_of(a) / twice_max),
        multiplier_of(scale_of(b) / twice_max),
        multiplier_of(twice_max / ((1 << add_shift(y)) * scale_of(y))),
    )


def mul_multiplier(a: Tensor, b: Tensor, y: Tensor) -> Multiplier:
    product = np.float32(scale_of(a)) * np.float32(scale_of(b)) / np.float32(scale_of(y))
    return rounded_for(y, multiplier_of(float(product)))


def rescale_multiplier(x: Tensor, y: Tensor) -> Multiplier:
    """Factor from stored units of `x` to stored units of `y`; f64, unlike `ratio32`."""
    return multiplier_of(scale_of(x) / scale_of(y))


def mean_multiplier(x: Tensor, y: Tensor, count: int) -> Multiplier:
    """Factor from the sum of `count` stored values (without zero points) to their mean in `y`."""
    multiplier, shift = quantize_multiplier(scale_of(x) / scale_of(y))
    bits = max(min(count.bit_length() - 1, 32, 31 + shift), 0)
    factor = Multiplier(
        np.array([(multiplier << bits) // count], np.int32), np.array([shift - bits], np.int32)
    )
    return rounded_for(y, factor)


def lookup_table(op: Operator, x: Tensor, y: Tensor) -> Array:
    """Results of a unary operator for all 8- or 16-bit inputs, indexed by the unsigned value."""
    count = 1 << 8 * x.dtype.bytes
    unsigned = np.uint8 if x.dtype.bytes == 1 else np.uint16
    quantized = np.arange(count).astype(unsigned).view(x.dtype.numpy)
    probe = Tensor(x.name, (count,), x.dtype, x.quant)
    return op.reference([quantized], [probe], [Tensor(y.name, (count,), y.dtype, y.quant)])[0]


def dequantize(x: Array, quant: Quant) -> NDArray[np.float32]:
    """Convert stored values to real ones (f32)."""
    shape = [1] * x.ndim
    if quant.per_channel:
        shape[quant.axis] = quant.scale.size
    scale = quant.scale.astype(np.float64).reshape(-1)
    zero = quant.zero_point.reshape(-1)
    if quant.per_channel:
        scale = scale.reshape(shape)
        zero = zero.reshape(shape) if zero.size > 1 else zero
    return (scale * (x.astype(np.int64) - zero)).astype(np.float32).reshape(x.shape)


def nearest_stored(y: Array, out: Tensor) -> Array:
    """f32 values as stored values of `out`, halves to even (ONNX); NaN is the smallest."""
    low, high = quantized_range(out.dtype)
    with np.errstate(all="ignore"):
        whole = np.rint(y / np.float32(scale_of(out))) + np.float32(zero_point_of(out))
    return np.clip(np.where(np.isnan(whole), low, whole), low, high).astype(out.dtype.numpy)


def saturate(x: I64, zero_point: int, low: int, high: int, dtype: DType) -> Array:
    """Add the zero point, clamp, and convert to `dtype`."""
    return np.clip(x + zero_point, low, high).astype(dtype.numpy)


def concat_rescale(x: Array, x_tensor: Tensor, out: Tensor) -> Array:
    """Requantize x to the output; TFLite's Concat does this in f32."""
    if not out.dtype.is_quantized or x_tensor.quant is out.quant or out.quant is None:
        return x
    same_scale = scale_of(x_tensor) == scale_of(out)
    if same_scale and zero_point_of(x_tensor) == zero_point_of(out):
        return x
    if out.quant.rounds_once and x_tensor.quant is not None:
        return nearest_stored(dequantize(x, x_tensor.quant), out)
    scale = np.float32(scale_of(x_tensor)) * (np.float32(1) / np.float32(scale_of(out)))
    bias = np.float32(-zero_point_of(x_tensor)) * scale
    quantized = round_half_away(x.astype(np.float32) * scale + bias).astype(np.int64)
    low, high = quantized_range(out.dtype)
    return np.clip(quantized + zero_point_of(out), low, high).astype(out.dtype.numpy)

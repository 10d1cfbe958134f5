"""Fixed-point exp and softmax, bit-exact with TFLite's integer reference kernels.

Numbers are int64 arrays that hold int32 values; Qk has k integer bits and 31−k fraction bits.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.ir.quantization import (
    I64,
    Multiplier,
    doubling_high_multiply,
    multiplier_of,
    quantized_range,
    rounding_shift,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Array, Tensor

FRACTION_SCALE = 1 / 256  # scale of the 8-bit outputs of logistic and softmax

_ONE = 2**31 - 1  # 1.0 in Q0, saturated
_MIN = -(2**31)

# exp(-2^k) in Q0 for k = -2 .. 4
_EXP_OF_POWERS = {
    -2: 1672461947,
    -1: 1302514674,
    0: 790015084,
    1: 290630308,
    2: 39332535,
    3: 720401,
    4: 242,
}
_EXP_MINUS_EIGHTH = 1895147668
_ONE_THIRD = 715827883
_48_OVER_17_Q2 = 1515870810
_MINUS_32_OVER_17_Q2 = -1010580540

SOFTMAX_DIFF_BITS = 5
SOFTMAX_SUM_BITS = 12


def exp_negative(a: I64, integer_bits: int) -> I64:
    """exp of a ≤ 0 in Q`integer_bits`; the result is Q0."""
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    below = (a & (quarter - 1)) - quarter
    result = _exp_last_quarter(_saturating_left(below, integer_bits))
    remainder = below - a
    for power, factor in _EXP_OF_POWERS.items():
        if power < integer_bits:
            taken = (remainder & (1 << (fraction_bits + power))) != 0
            result = np.where(taken, doubling_high_multiply(result, factor), result)
    return np.where(a == 0, _ONE, result)


def _exp_last_quarter(a: I64) -> I64:
    """exp of a in [−1/4, 0) in Q0, by its Taylor series around −1/8."""
    x = a + (1 << 28)
    x2 = doubling_high_multiply(x, x)
    x3 = doubling_high_multiply(x2, x)
    x4 = doubling_high_multiply(x2, x2)
    cubic = doubling_high_multiply(rounding_shift(x4, 2) + x3, _ONE_THIRD)
    tail = rounding_shift(cubic + x2, 1)
    return _EXP_MINUS_EIGHTH + doubling_high_multiply(x + tail, _EXP_MINUS_EIGHTH)


def one_over_one_plus(a: I64) -> I64:
    """1 / (1 + a) of a in [0, 1], both Q0: three Newton steps on Q2 values."""
    total = a + _ONE
    half_denominator = (total + 1) >> 1
    x = _48_OVER_17_Q2 + doubling_high_multiply(half_denominator, _MINUS_32_OVER_17_Q2)
    for _ in range(3):
        error = (1 << 29) - doubling_high_multiply(half_denominator, x)
        x = x + _saturating_left(doubling_high_multiply(x, error), 2)
    return _saturating_left(x, 1)


def _saturating_left(x: I64, bits: int) -> I64:
    shifted: I64 = np.clip(x << bits, _MIN, _ONE)
    return shifted


def is_fraction(t: Tensor) -> bool:
    """Whether 8-bit values are fractions of 256 with the zero point at the minimum."""
    low, _ = quantized_range(t.dtype)
    return math.isclose(scale_of(t), FRACTION_SCALE, rel_tol=1e-3) and zero_point_of(t) == low


def _input_radius(integer_bits: int, left_shift: int) -> int:
    """Largest difference whose rescaled value still fits the fixed-point format."""
    largest = ((1 << integer_bits) - 1) * 2.0 ** (31 - integer_bits)
    return math.floor(largest / 2.0**left_shift)


def softmax_factor(x: Tensor, beta: float) -> float:
    """Real factor from differences of stored values to Q5."""
    return beta * scale_of(x) * (1 << (31 - SOFTMAX_DIFF_BITS))


def softmax_multiplier(x: Tensor, beta: float) -> Multiplier:
    """`softmax_factor` as the integer kernels apply it."""
    return multiplier_of(softmax_factor(x, beta))


def softmax_8bit(x: Array, x_tensor: Tensor, out: Tensor, beta: float) -> Array:
    """Softmax over the last axis; output scale 1/256, zero point at the minimum."""
    factor = softmax_multiplier(x_tensor, beta)
    smallest = -_input_radius(SOFTMAX_DIFF_BITS, int(factor.shift[0]))
    wide = x.astype(np.int64)
    difference = wide - wide.max(axis=-1, keepdims=True)
    counts = difference >= smallest
    powers = exp_negative(factor.apply(np.where(counts, difference, 0)), SOFTMAX_DIFF_BITS)
    total = np.where(counts, rounding_shift(powers, SOFTMAX_SUM_BITS), 0)
    total = total.sum(axis=-1, keepdims=True)
    headroom = 32 - np.array([int(t).bit_length() for t in total.flat]).reshape(total.shape)
    reciprocal = one_over_one_plus((total << headroom) - (1 << 31))
    scaled = doubling_high_multiply(reciprocal, powers)
    low, high = quantized_range(out.dtype)
    quantized = rounding_shift(scaled, SOFTMAX_SUM_BITS - headroom + 31 - 8) + low
    return np.where(counts, np.clip(quantized, low, high), low).astype(out.dtype.numpy)

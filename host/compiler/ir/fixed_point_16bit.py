"""16-bit fixed-point logistic and tanh, bit-exact with TFLite's integer LSTM kernels.

Numbers are int64 arrays that hold int16 values; Qk has k integer bits and 15−k fraction bits.
The standalone operators LOGISTIC and TANH on 16-bit tensors are computed differently.
"""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir.quantization import I64, rounding_shift

_ONE = 2**15 - 1  # 1.0 in Q0, saturated
_MIN = -(2**15)
_HALF = 1 << 14
_ONE_Q2 = 1 << 13

# exp(-2^k) in Q0 for k = -2 .. 4, rounded
_EXP_OF_POWERS = {-2: 25520, -1: 19875, 0: 12055, 1: 4435, 2: 600, 3: 11, 4: 0}
_EXP_MINUS_EIGHTH = 28918
_ONE_THIRD = 10923
_48_OVER_17_Q2 = 23130
_MINUS_32_OVER_17_Q2 = -15420
_NEGLIGIBLE_BITS = 5  # formats with more integer bits contain values below −32, where exp is 0


def logistic_16bit(x: I64) -> I64:
    """1 / (1 + e^−x) of x in Q3; the result is Q0."""
    positive = _one_over(_exp_negative(-np.abs(x), 3), 0)
    value = np.where(x > 0, positive, _ONE - positive)
    return np.where(x == 0, _HALF, value)


def tanh_16bit(x: I64, integer_bits: int) -> I64:
    """tanh of x in Q`integer_bits`, which is 0 to 6; the result is Q0."""
    value = _one_over(_exp_negative(-np.abs(x), integer_bits + 1), _ONE_Q2)
    return np.where(x == 0, 0, np.where(x < 0, -value, value))


def multiply_16bit(a: I64, b: I64 | int) -> I64:
    """2·a·b >> 16, rounded to nearest, halves away from zero."""
    product = a * b
    nudged = product + np.where(product >= 0, _HALF, 1 - _HALF)
    toward_zero = np.where(nudged < 0, -(-nudged >> 15), nudged >> 15)
    return np.minimum(toward_zero, _ONE)


def _exp_negative(a: I64, integer_bits: int) -> I64:
    """exp of a ≤ 0 in Q`integer_bits`."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    below = (a & (quarter - 1)) - quarter
    result = _exp_last_quarter(below << integer_bits)
    remainder = below - a
    for power, factor in _EXP_OF_POWERS.items():
        if power < integer_bits:
            taken = (remainder & (1 << (fraction_bits + power))) != 0
            result = np.where(taken, multiply_16bit(result, factor), result)
    if integer_bits > _NEGLIGIBLE_BITS:
        result = np.where(a < -(1 << (fraction_bits + 5)), 0, result)
    return np.where(a == 0, _ONE, result)


def _exp_last_quarter(a: I64) -> I64:
    """exp of a in [−1/4, 0) in Q0, by its Taylor series around −1/8."""
    x = a + (1 << 12)
    x2 = multiply_16bit(x, x)
    x3 = multiply_16bit(x2, x)
    x4 = multiply_16bit(x2, x2)
    cubic = multiply_16bit(rounding_shift(x4, 2) + x3, _ONE_THIRD)
    tail = rounding_shift(cubic + x2, 1)
    return _EXP_MINUS_EIGHTH + multiply_16bit(x + tail, _EXP_MINUS_EIGHTH)


def _one_over(a: I64, less: int) -> I64:
    """1 / (1 + a) for a in [0, 1] or, with `less` = 1 in Q2, (1 − a) / (1 + a)."""
    half_denominator = (a + _ONE + 1) >> 1
    x = _48_OVER_17_Q2 + multiply_16bit(half_denominator, _MINUS_32_OVER_17_Q2)
    for _ in range(3):
        error = _ONE_Q2 - multiply_16bit(half_denominator, x)
        x = x + np.clip(multiply_16bit(x, error) << 2, _MIN, _ONE)
    result: I64 = np.clip((x - less) << (2 if less else 1), _MIN, _ONE)
    return result

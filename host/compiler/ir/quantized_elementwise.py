"""Quantized element-wise operators (8 and 16 bits), bit-exact with LiteRT's reference kernels.

Each function takes stored values and the tensors with their scales, and returns stored values. The
kernels of unary and of 8-bit binary functions are tables of all results, so the board is bit-exact
with these formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.ir.fixed_point import one_over_one_plus
from edgekit.host.compiler.ir.interpolated import by_lines
from edgekit.host.compiler.ir.quantization import (
    I64,
    Multiplier,
    add_multipliers,
    add_shift,
    doubling_high_multiply,
    multiplier_of,
    quantize_multiplier,
    quantized_range,
    round_half_away,
    rounded_for,
    rounding_shift,
    saturate,
    scale_of,
    shortened,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Array, DType, Tensor

_COMPARED_SHIFT = 8  # left shift of comparison operands before rescaling
_ROOT_BITS = 20  # fraction bits of 1 / √x
_DIFFERENCE_SHIFT = 7  # left shift of squared-difference operands before rescaling
_I32_MAX = 2**31 - 1


def offset(x: Array, tensor: Tensor) -> I64:
    """Stored values minus their zero point."""
    return x.astype(np.int64) - zero_point_of(tensor)


def stored(x: I64, out: Tensor) -> Array:
    """Convert integers in units of `out` to stored values."""
    low, high = quantized_range(out.dtype)
    return saturate(x, zero_point_of(out), low, high, out.dtype)


def ratio32(over: Tensor, under: Tensor, factor: float = 1.0) -> Multiplier:
    """over's scale · factor / under's scale, in f32."""
    product = np.float32(scale_of(over)) * np.float32(factor)
    with np.errstate(over="ignore"):
        return rounded_for(under, multiplier_of(float(product / np.float32(scale_of(under)))))


def by_real(formula: Callable[[Array], Array], x: Array, source: Tensor, out: Tensor) -> Array:
    """Quantized formula(real value), rounded from f32."""
    if out.dtype is DType.I16:
        return by_lines(formula, x, source, out)
    step = np.float32(1) / np.float32(scale_of(out))
    real = np.float32(scale_of(source)) * offset(x, source).astype(np.float32)
    with np.errstate(all="ignore"):
        y = np.asarray(formula(real.astype(np.float64))).astype(np.float32)
        return _codes_of(round_half_away(y * step), out)


def _codes_of(y: Array, out: Tensor) -> Array:
    """Whole f32 numbers in units of `out` as stored values; NaN is the smallest."""
    low, high = quantized_range(out.dtype)
    quantized = y + np.float32(zero_point_of(out))
    return np.clip(np.where(np.isnan(quantized), low, quantized), low, high).astype(out.dtype.numpy)


def square_root(x: Array, source: Tensor, out: Tensor) -> Array:
    """√x truncated, with LiteRT's division by the output scale."""
    with np.errstate(all="ignore"):
        root = np.sqrt(np.float32(scale_of(source)) * offset(x, source).astype(np.float32))
        return _codes_of(np.trunc(root / np.float32(scale_of(out))), out)


def inverse_root(x: Array, source: Tensor, out: Tensor) -> Array:
    """1 / √x in fixed point; the largest value for x = 0, the smallest for x < 0.
    In 16 bits interpolated linearly, and the largest value for all x ≤ 0."""
    low, high = quantized_range(out.dtype)
    if out.dtype is DType.I16:
        most = np.float32(scale_of(out)) * np.float32(high - zero_point_of(out))
        return by_lines(lambda at: np.where(at > 0, at**-0.5, most), x, source, out)
    value = offset(x, source)
    unit = np.sqrt(np.float32(scale_of(source))) * np.float32(scale_of(out))
    factor = multiplier_of(1.0 / float(unit))
    multiplier, right = inverse_square_root(np.maximum(value, 1))
    inverse = Multiplier(multiplier.astype(np.int32), (_ROOT_BITS - right).astype(np.int32))
    root = inverse.apply(np.ones_like(value))
    y = Multiplier(factor.multiplier, factor.shift - _ROOT_BITS).apply(root)
    quantized = np.where(value > 0, stored(y, out), np.where(value < 0, low, high))
    return quantized.astype(out.dtype.numpy)


def leaky_relu(alpha: float, x: Array, source: Tensor, out: Tensor) -> Array:
    value = offset(x, source)
    below = ratio32(source, out, alpha).apply(value)
    return stored(np.where(value >= 0, ratio32(source, out).apply(value), below), out)


def absolute(x: Array, source: Tensor, out: Tensor) -> Array:
    value = np.abs(offset(x, source))
    if scale_of(source) != scale_of(out):
        value = ratio32(source, out).apply(value)
    return stored(value, out)


def inverse_square_root(x: I64) -> tuple[I64, I64]:
    """(multiplier, right shift) of 1/√x for integers x ≥ 1: multiplier · 2^(−31 − shift)."""
    value, shift = x.copy(), np.full(x.shape, 11, np.int64)
    while (large := value >= 1 << 29).any():
        value, shift = np.where(large, value // 4, value), shift + large
    bits = np.array([int(v).bit_length() for v in value.flat], np.int64).reshape(x.shape)
    pairs = (32 - bits - 1) // 2 - 1
    shift, value = shift - pairs, value << (2 * pairs)
    half_input = rounding_shift(value >> 1, 1)
    root = np.full(x.shape, 1 << 28, np.int64)  # 1 in Q3
    for _ in range(5):
        cube = doubling_high_multiply(doubling_high_multiply(root, root), root)
        cube = np.clip(cube << 6, -(2**31), _I32_MAX)
        step = doubling_high_multiply(root, (1 << 28) + (1 << 27))
        step = step - doubling_high_multiply(half_input, cube)
        root = np.clip(step << 3, -(2**31), _I32_MAX)
    root = doubling_high_multiply(root, 1518500250)  # √2 / 2 in Q0
    left = np.maximum(-shift, 0)
    one = x <= 1
    return np.where(one, _I32_MAX, root << left), np.where(one, 0, np.maximum(shift, 0))


def subtract(a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor) -> Array:
    """Subtract by adding the negated operand, which rounds differently from a difference."""
    factors = add_multipliers(left, right, out)
    wide = [offset(x, t) << add_shift(out) for x, t in ((a, left), (b, right))]
    total = factors.a.apply(wide[0]) + factors.b.negative.apply(wide[1])
    return stored(factors.output.apply(total), out)


def prelu(x: Array, alpha: Array, source: Tensor, slope: Tensor, out: Tensor) -> Array:
    value = offset(x, source)
    below = ratio32(source, out, scale_of(slope)).apply(value * offset(alpha, slope))
    return stored(np.where(value >= 0, ratio32(source, out).apply(value), below), out)


def squared_difference(a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor) -> Array:
    twice = 2.0 * max(scale_of(left), scale_of(right))
    scaled = [
        multiplier_of(scale_of(t) / twice).apply(offset(x, t) << _DIFFERENCE_SHIFT)
        for x, t in ((a, left), (b, right))
    ]
    real = twice * twice / ((1 << 2 * _DIFFERENCE_SHIFT) * scale_of(out))
    return stored(multiplier_of(real).apply((scaled[0] - scaled[1]) ** 2), out)


def divide(a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor) -> Array:
    """Quantized quotient; a division by zero gives the zero point of `out`."""
    over, under = np.broadcast_arrays(offset(a, left), offset(b, right))
    over, under = np.where(under < 0, -over, over), np.abs(under)
    empty = under == 0
    under = np.where(empty, 1, under)
    bits = np.array([int(v).bit_length() for v in under.flat], np.int64).reshape(under.shape)
    inverse = one_over_one_plus((under << (32 - bits)) - (1 << 31))
    sizes = [int(v if v >= 0 else ~v).bit_length() for v in over.flat]
    headroom = 31 - np.array(sizes, np.int64).reshape(over.shape)
    quotient = doubling_high_multiply(over << headroom, inverse)
    multiplier, factor_shift = (int(v) for v in quotient_factors(left, right, out)[-2:])
    shift = factor_shift - (bits - 1) - headroom
    product = doubling_high_multiply(quotient, multiplier)
    scaled = rounding_shift(product, np.maximum(-shift, 0))
    return stored(np.where(empty, 0, scaled), out)


def quotient_factors(left: Tensor, right: Tensor, out: Tensor) -> Array:
    """s32: zero points, minimum and maximum of `out`, multiplier and shift of quotients."""
    real = np.float32(scale_of(left)) / (np.float32(scale_of(right)) * np.float32(scale_of(out)))
    zeros = [zero_point_of(t) for t in (left, right, out)]
    return np.array(
        [*zeros, *quantized_range(out.dtype), *quantize_multiplier(float(real))], np.int32
    )


def total(x: Array, axes: tuple[int, ...], source: Tensor, out: Tensor) -> Array:
    """Sums over `axes`; u8 is rescaled by an integer factor, other dtypes in f32."""
    if source.dtype is DType.U8:
        factor = multiplier_of(scale_of(source) / scale_of(out))
        y = factor.apply(offset(x, source).sum(axis=axes))
    else:
        step, bias = total_line(source, out, math.prod(x.shape[a] for a in axes))
        sums = x.astype(np.int64).sum(axis=axes).astype(np.float32)
        y = round_half_away(sums * step + bias).astype(np.int64)
    return stored(y, out).reshape(out.shape)


def product(x: Array, axes: tuple[int, ...], source: Tensor, out: Tensor) -> Array:
    """Products over `axes`. Each step is scaled by the same factor, whose total effect is the
    output scale; intermediate overflow of 32 bits wraps."""
    rest = [i for i in range(x.ndim) if i not in axes]
    steps = offset(x, source).transpose(*rest, *axes)
    steps = steps.reshape(math.prod(x.shape[i] for i in rest), -1).T
    factor = product_multiplier(source, out, len(steps))
    y = steps[0]
    for step in steps[1:]:
        y = shortened(y * step, factor).astype(np.int32).astype(np.int64)
    y = shortened(y, factor).astype(np.int32).astype(np.int64)
    return stored(y, out).reshape(out.shape)


def product_multiplier(source: Tensor, out: Tensor, count: int) -> Multiplier:
    return multiplier_of(scale_of(source) / scale_of(out) ** (1 / count))


def total_line(source: Tensor, out: Tensor, count: int) -> tuple[np.float32, np.float32]:
    """Slope and offset from the sum of `count` stored values to units of `out`."""
    step = np.float32(scale_of(source)) / np.float32(scale_of(out))
    return step, np.float32(-zero_point_of(source)) * step * np.float32(count)


def comparable(x: Array, tensor: Tensor) -> I64:
    """Convert stored values to a unit common to all tensors."""
    return multiplier_of(scale_of(tensor)).apply(offset(x, tensor) << _COMPARED_SHIFT)


def hard_swish(x: Array, source: Tensor, out: Tensor) -> Array:
    """x · relu6(x + 3) / 6 in 16-bit fixed point; the input has 7 fraction bits."""
    fine = np.float32(scale_of(source)) * np.float32(1 / 128)
    output = multiplier_of(float(fine / np.float32(scale_of(out))))
    gate = multiplier_of(float(fine / (np.float32(3) / np.float32(32768))))
    wide = offset(x, source) << 7
    rise = int(gate.shift[0])
    reluish = _saturate_16bit(wide << max(rise - 1, 0))
    reluish = _high_multiply16(reluish, _narrow_multiplier(gate))
    reluish = _saturate_16bit(reluish << min(max(rise, 0), 1))
    reluish = rounding_shift(reluish, max(-rise, 0))
    reluish = (reluish + (1 << 15)) >> 1
    scaled = _high_multiply16(wide, _narrow_multiplier(output))
    product = reluish * scaled
    # Truncated, like a C division.
    high = _saturate_16bit(np.sign(product) * (np.abs(product) >> 15))
    return stored(rounding_shift(high, max(-int(output.shift[0]), 0)), out)


def _saturate_16bit(x: I64) -> I64:
    y: I64 = np.clip(x, -(2**15), 2**15 - 1)
    return y


def _high_multiply16(x: I64, factor: int) -> I64:
    """x · factor / 2^15, rounded."""
    return _saturate_16bit((x * factor + (1 << 14)) >> 15)


def _narrow_multiplier(factor: Multiplier) -> int:
    """Convert a 31-bit multiplier to 15 bits."""
    return min((int(factor.multiplier[0]) + (1 << 15)) >> 16, 2**15 - 1)


def unit_length(x: Array, source: Tensor, out: Tensor) -> Array:
    """Rows divided by their Euclidean norm; output scale 1/128, zero point at the middle of the
    range."""
    value = offset(x, source)
    multiplier, right = inverse_square_root((value * value).sum(axis=-1, keepdims=True))
    # For s8, the factor 128 is merged with the multiplier's shift; for u8 it is applied before.
    shift = 7 - right if source.dtype is DType.I8 else np.full_like(right, 7)
    after = np.maximum(-shift, 0) if source.dtype is DType.I8 else right
    wide = value << np.maximum(shift, 0)
    scaled = rounding_shift(doubling_high_multiply(wide, multiplier), after)
    low, high = quantized_range(out.dtype)
    return saturate(scaled, (low + high + 1) // 2, low, high, out.dtype)

"""Exact requantization of 8-bit products with float arithmetic.

A linear function of the sums replaces the fixed-point multiplication. Adding a sum to the bits of a
float between 2^23 and 2^24 yields that float plus the sum, without a conversion. One fused
multiply-add to a float in the same range rounds to an integer and leaves it in the low bits. TFLite
rounds twice instead, but both functions are nondecreasing in the sum, so they are equal for all
sums if they agree on both sides of each step from one quantized value to the next, which is
verified here. The slope may be any float near the factor, and sums may be added to any integer of
the range; often some choice of both satisfies all steps.

No single line fits if outputs of both signs matter: TFLite's second rounding moves halves away from
zero, so the steps above and below zero lie on two different lines. In that case one line computes
the result of the first rounding, all of whose steps lie on one line, and a second line computes the
quantized value. The second line is slightly too steep, which rounds halves away from zero, and it
maps the zero of the first line to an integer up to less than that excess.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.ir.quantization import Multiplier, quantized_range, zero_point_of
from edgekit.host.compiler.ir.types import Array, Tensor

_LEAST, _END = 1 << 23, 1 << 24  # consecutive floats from _LEAST to _END differ by 1
_LEAST_BITS = 0x4B000000
_ZERO = 3 << 22  # the float for quantized value 0: its low 16 bits are zero
_MOST_SHIFT = 14
_SLOPES = np.arange(-4, 5, dtype=np.int32)  # offsets in ulps from the factor to try as slopes
_NEAR = 4  # TFLite's step is at most so far from the real-valued one


@dataclass(frozen=True, eq=False)
class Lines:
    """Per channel: q = low 16 bits of round(slope * float with bits (start + sum) + offset).

    `start` is added to the bias. If there is a second line, the resulting float goes through it
    too.
    """

    start: Array  # i64 [n]
    slope: Array  # f32 [n]
    offset: Array  # f32 [n]
    second: tuple[Array, Array] | None = None  # slope and offset


@dataclass(frozen=True)
class _Codes:
    """The range of quantized values, and their zero point."""

    low: int
    high: int
    zero: int


@dataclass(frozen=True, eq=False)
class _Steps:
    """The sums [values, n] at which the output reaches each quantized value.

    `code` [values, 1] holds the values less the zero point. Sums range from `least` to `most`
    [n]; a step outside this range is never reached.
    """

    code: Array
    sum: Array
    least: Array
    most: Array

    @property
    def above(self) -> Array:
        """The smallest sum above each step, at least `least`."""
        above: Array = np.maximum(self.sum, self.least)
        return above

    @property
    def below(self) -> Array:
        """The largest sum below each step, at most `most`."""
        below: Array = np.minimum(self.sum - 1, self.most)
        return below


def lines_of(
    factor: Multiplier, least: Array, most: Array, y: Tensor, count: int = 2
) -> Lines | None:
    """Finds lines that map sums from `least` to `most` (i64 [n]) to y exactly as `factor` does.

    `factor` is per tensor or per channel; results are equal after clamping to the type of y.
    Returns None unless at most `count` lines suffice for all channels.
    """
    span = int((most - least).max(initial=0))
    if span >= _END - _LEAST or np.any(factor.shift > 0) or np.any(factor.multiplier == 0):
        return None
    each = np.zeros(least.shape, np.int32)
    parts = (factor.multiplier + each, factor.shift + each)
    ends = (least.astype(np.int64), most.astype(np.int64))
    codes = _Codes(*quantized_range(y.dtype), zero_point_of(y))
    return _lines_of(*(v.tobytes() for v in (*parts, *ends)), codes, count)


@functools.lru_cache(maxsize=512)  # layers of a model, whose graph is planned several times
def _lines_of(
    multiplier: bytes, shift: bytes, first: bytes, last: bytes, codes: _Codes, count: int
) -> Lines | None:
    factor = Multiplier(np.frombuffer(multiplier, np.int32), np.frombuffer(shift, np.int32))
    least, most = np.frombuffer(first, np.int64), np.frombuffer(last, np.int64)
    steps = _steps_of(factor, least, most, codes)
    real = np.ldexp(factor.multiplier.astype(np.float64), factor.shift - 31)
    zero = np.full(least.shape, _ZERO + codes.zero, np.int32)
    lines = _fit_lines(real, steps.code - 0.5, steps, zero)
    if lines is not None and _lines_are_exact(lines, factor, steps, codes):
        return lines
    lines = _in_two(factor, steps, codes) if count > 1 else None
    return lines if lines is not None and _lines_are_exact(lines, factor, steps, codes) else None


def _in_two(factor: Multiplier, steps: _Steps, codes: _Codes) -> Lines | None:
    """Fits one line to the first rounding and one to the second, which divides by 2^shift.

    The second slope is too large by a factor of 1 + 2^-(shift + 8): enough to round halves away
    from zero, too little to affect 8-bit values.
    """
    shift = -factor.shift.astype(np.int64)
    if shift.max(initial=0) > _MOST_SHIFT or shift.min(initial=1) < 1:
        return None
    excess = 3 << (_MOST_SHIFT - shift)  # excess of the second slope at _ZERO, times 2^shift
    rest = (excess + (1 << (shift - 1))) % (1 << shift) - (1 << (shift - 1))
    first = (steps.code - 0.5) * (1 << shift) + (steps.code <= 0)
    real = np.ldexp(factor.multiplier.astype(np.float64), -31)
    lines = _fit_lines(real, first - 0.5, steps, _ZERO - rest)
    if lines is None:
        return None
    slope = np.ldexp(1 + np.ldexp(1.0, -8 - shift), -shift).astype(np.float32)
    offset = _ZERO + codes.zero - ((_ZERO + excess - rest) >> shift)
    return replace(lines, second=(slope, offset.astype(np.float32)))


def _steps_of(factor: Multiplier, least: Array, most: Array, codes: _Codes) -> _Steps:
    code = np.arange(codes.low + 1, codes.high + 1, dtype=np.int64)[:, None] - codes.zero
    real = np.ldexp(factor.multiplier.astype(np.float64), factor.shift - 31)
    about = np.clip(np.floor((code - 0.5) / real), least - 8, most + 8).astype(np.int64)
    before, step = about - _NEAR - 1, about + _NEAR + 1  # the step is behind `before`
    for _ in range((2 * _NEAR + 1).bit_length()):
        middle = (before + step) // 2
        reached = factor.apply(middle) >= code
        before, step = np.where(reached, before, middle), np.where(reached, middle, step)
    # Steps that are not there are out of range, where any sum does.
    step = np.where(step > about + _NEAR, about - _NEAR, np.maximum(step, about - _NEAR))
    return _Steps(code, step, least, most)


def _fit_lines(real: Array, half: Array, steps: _Steps, zero: Array) -> Lines | None:
    """Fits lines with slopes near `real` [n] that cross `half` [values, n] at the steps.

    Offsets are relative to `zero` [n].
    """
    slopes = (real.astype(np.float32).view(np.int32) + _SLOPES[:, None]).view(np.float32)
    wide = slopes.astype(np.float64)[:, None]
    low = np.where(steps.sum <= steps.most, half - steps.above * wide, -np.inf).max(axis=1)
    high = np.where(steps.sum > steps.least, half - steps.below * wide, np.inf).min(axis=1)
    low = np.where(np.isinf(low), high - slopes, low)  # all sums are above all steps
    high = np.where(np.isinf(high), low + slopes, high)
    best = np.argmax(high - low, axis=0)[None]
    low, high, slope = (np.take_along_axis(v, best, axis=0)[0] for v in (low, high, slopes))
    start, offset = [], []
    for c in range(len(slope)):
        ends = int(steps.least[c]), int(steps.most[c])
        place = _find_origin(float(slope[c]), float(low[c]), float(high[c]), ends)
        if place is None:
            return None
        start.append(_LEAST_BITS - _LEAST + place[0])
        offset.append(int(zero[c]) + place[1])
    return Lines(np.array(start), slope, np.array(offset, np.float32))


def _find_origin(
    slope: float, low: float, high: float, sums: tuple[int, int]
) -> tuple[int, int] | None:
    """Finds integers `origin`, to which sums are added, and `offset`.

    slope * origin + offset lies between `low` and `high`. Returns None if sums would leave the
    float range or no integer fits.
    """
    numerator, denominator = slope.as_integer_ratio()
    margin = (high - low) / 64  # allows for rounding of the bounds
    least, most = int((low + margin) * denominator), int((high - margin) * denominator)
    if least >= most:
        return None
    first = _LEAST - sums[0]
    aim = (least - first * numerator) % denominator
    further = _first_in(numerator % denominator, denominator, aim, most - least)
    if further is None or first + further + sums[1] >= _END:
        return None
    origin = first + further
    return origin, -((origin * numerator - least) // denominator)


def _first_in(factor: int, modulus: int, low: int, width: int) -> int | None:
    """The smallest x >= 0 with (factor * x - low) mod modulus <= width."""
    if -low % modulus <= width:
        return 0
    return _first_between(factor, modulus, low, low + width)


def _first_between(factor: int, modulus: int, low: int, high: int) -> int | None:
    """The smallest x with low <= factor * x mod modulus <= high, where 0 < low <= high < modulus.

    Reduces factor and modulus as Euclid's algorithm does, which preserves the form of the problem.
    """
    if factor == 0:
        return None
    if 2 * factor > modulus:
        return _first_between(modulus - factor, modulus, modulus - high, modulus - low)
    x = -(-low // factor)
    if factor * x <= high:
        return x
    turns = _first_between(-modulus % factor, factor, low % factor, high % factor)
    return None if turns is None else -(-(low + modulus * turns) // factor)


def _lines_are_exact(lines: Lines, factor: Multiplier, steps: _Steps, codes: _Codes) -> bool:
    """True if the quantized values match on both sides of each step and at both ends."""
    above, below = np.minimum(steps.above, steps.most), np.maximum(steps.below, steps.least)
    sums = np.concatenate([above, below, steps.least[None], steps.most[None]])
    found = outputs_of(lines, sums)
    if found is None:
        return False
    expected = np.clip(factor.apply(sums) + codes.zero, codes.low, codes.high)
    return np.array_equal(np.clip(found, codes.low, codes.high), expected)


def outputs_of(lines: Lines, sums: Array) -> Array | None:
    """The kernel's unclamped output for `sums` (i64 [.., n]), in exact integer arithmetic.

    Returns None if a float leaves the range or an output exceeds 16 bits.
    """
    x = sums + lines.start - (_LEAST_BITS - _LEAST)
    y = _on_line(x, lines.slope, lines.offset)
    if y is not None and lines.second is not None:
        y = _on_line(y, *lines.second)
    if y is None or np.abs(y - _ZERO).max() >= 1 << 15:
        return None
    quantized: Array = y - _ZERO
    return quantized


def _on_line(x: Array, slope: Array, offset: Array) -> Array | None:
    """slope * x + offset, rounded once; None if x or the result is outside [2^23, 2^24)."""
    mantissa, exponent = np.frexp(slope.astype(np.float64))
    below = 24 - exponent.astype(np.int64)  # fraction bits of the product
    if x.min() < _LEAST or x.max() >= _END or below.min() < 1 or below.max() > 60:
        return None
    product = x * np.ldexp(mantissa, 24).astype(np.int64)
    rest, half = product & ((np.int64(1) << below) - 1), np.int64(1) << (below - 1)
    y: Array = offset.astype(np.int64) + (product >> below)
    y += (rest > half) | ((rest == half) & (y & 1 == 1))
    return None if y.min() < _LEAST or y.max() >= _END else y

"""kissfft's fixed-point Fourier transform, reproduced including every rounding.

A transform of n real points consists of a complex one of n / 2 points, on pairs of samples, and a
final step. The complex transform is decimated in time by 4 as often as possible, then by 2. Numbers
are fractions of 15 or 31 bits. Each step divides its inputs by the number of terms it adds, rounds
products to nearest, and lets sums wrap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.types import Array, DType

Pair = tuple[Array, Array]  # real and imaginary parts, s64


@dataclass(frozen=True, eq=False)
class FourierStep:
    """Combines `radix` transforms of `length` points; `twiddles`: s64 [radix - 1, 2, length]."""

    radix: int
    length: int
    twiddles: Array


class Transform:
    """A transform of real `points`, a power of two, of dtype s16 or s32, with its tables.

    `order` [points / 2]: input permutation of the sample pairs; `steps`: butterfly steps in
    execution order; `last`: s64 [2, points / 4], twiddles of the final step (the first one of the
    inverse).
    """

    def __init__(self, points: int, dtype: DType, inverse: bool = False) -> None:
        self.half = points // 2
        self.inverse = inverse
        self.bits = 8 * dtype.bytes - 1
        self._dtype = dtype.numpy
        levels = self.half.bit_length() - 1
        radices = [4] * (levels // 2) + [2] * (levels % 2)
        self.order = _digit_reversal(radices)
        self.steps = []
        length = 1
        for radix in reversed(radices):
            stride = self.half // (radix * length)
            turns = np.outer(np.arange(1, radix), np.arange(length)) * stride
            circle = self._unit_circle(-2 * math.pi * turns / self.half)
            self.steps.append(FourierStep(radix, length, np.stack(circle, 1)))
            length *= radix
        part = np.arange(1, self.half // 2 + 1) / self.half
        self.last = np.stack(self._unit_circle(-math.pi * (part + 0.5)))

    def _unit_circle(self, angles: Array) -> Pair:
        angles = -angles if self.inverse else angles
        largest = (1 << self.bits) - 1
        real, imaginary = (
            np.floor(0.5 + largest * f(angles)).astype(np.int64) for f in (np.cos, np.sin)
        )
        return real, imaginary

    def forward(self, rows: Array) -> Array:
        """Transform [count, at most `points`] to [count, points + 2] of complex pairs."""
        wide = np.zeros((len(rows), 2 * self.half), np.int64)
        wide[:, : rows.shape[1]] = rows
        re, im = self._complex_fft((wide[:, 0::2], wide[:, 1::2]))
        out = np.zeros((len(rows), self.half + 1, 2), np.int64)
        first, second = self._divide_by_terms(re[:, 0], 2), self._divide_by_terms(im[:, 0], 2)
        out[:, 0, 0], out[:, self.half, 0] = first + second, first - second
        low = np.arange(1, self.half // 2 + 1)
        sums, rotated = self._combine_mirrored((re, im), low)
        out[:, low, 0] = self._wrap(sums[0] + rotated[0]) >> 1
        out[:, low, 1] = self._wrap(sums[1] + rotated[1]) >> 1
        out[:, self.half - low, 0] = self._wrap(sums[0] - rotated[0]) >> 1  # redoes the middle one
        out[:, self.half - low, 1] = self._wrap(rotated[1] - sums[1]) >> 1
        return out.reshape(len(rows), -1).astype(self._dtype)

    def backward(self, rows: Array) -> Array:
        """Transform [count, points + 2] of complex pairs to [count, points]."""
        wide = rows.reshape(len(rows), self.half + 1, 2).astype(np.int64)
        re, im = wide[:, :, 0], wide[:, :, 1]
        made = np.zeros((2, len(rows), self.half), np.int64)
        made[0, :, 0] = self._divide_by_terms(self._wrap_to_dtype(re[:, 0] + re[:, -1]), 2)
        made[1, :, 0] = self._divide_by_terms(self._wrap_to_dtype(re[:, 0] - re[:, -1]), 2)
        low = np.arange(1, self.half // 2 + 1)
        sums, rotated = self._combine_mirrored((re, im), low)
        made[0][:, low], made[1][:, low] = sums[0] + rotated[0], sums[1] + rotated[1]
        made[0][:, self.half - low] = sums[0] - rotated[0]
        made[1][:, self.half - low] = -self._wrap_to_dtype(sums[1] - rotated[1])
        made = self._wrap_to_dtype(made)
        parts = self._complex_fft((made[0], made[1]))
        return np.stack(parts, 2).reshape(len(rows), -1).astype(self._dtype)

    def _combine_mirrored(self, x: Pair, low: Array) -> tuple[Pair, Pair]:
        """Return sums of frequencies `low` and their conjugate mirror images, and their differences
        rotated by `last`."""
        high = self.half - low
        a = self._divide_by_terms(x[0][:, low], 2), self._divide_by_terms(x[1][:, low], 2)
        b = (
            self._divide_by_terms(x[0][:, high], 2),
            self._divide_by_terms(self._wrap_to_dtype(-x[1][:, high]), 2),
        )
        sums = self._wrap_to_dtype(a[0] + b[0]), self._wrap_to_dtype(a[1] + b[1])
        rest = self._wrap_to_dtype(a[0] - b[0]), self._wrap_to_dtype(a[1] - b[1])
        return sums, self._multiply_complex(rest, (self.last[0], self.last[1]))

    def _complex_fft(self, x: Pair) -> Pair:
        re, im = (part[:, self.order] for part in x)
        for step in self.steps:
            shape = (len(re), -1, step.radix, step.length)
            terms = [
                (self._divide_by_terms(re.reshape(shape)[:, :, j], step.radix),
                 self._divide_by_terms(im.reshape(shape)[:, :, j], step.radix))
                for j in range(step.radix)
            ]  # fmt: skip
            for j in range(1, step.radix):
                twiddles = step.twiddles[j - 1]
                terms[j] = self._multiply_complex(terms[j], (twiddles[0], twiddles[1]))
            joined = self._radix4(terms) if step.radix == 4 else _radix2(terms)
            re, im = (
                self._wrap_to_dtype(np.stack([t[i] for t in joined], 2)).reshape(len(re), -1)
                for i in (0, 1)
            )
        return re, im

    def _radix4(self, x: list[Pair]) -> list[Pair]:
        rest = x[0][0] - x[2][0], x[0][1] - x[2][1]
        first = x[0][0] + x[2][0], x[0][1] + x[2][1]
        sums = x[1][0] + x[3][0], x[1][1] + x[3][1]
        apart = x[1][0] - x[3][0], x[1][1] - x[3][1]
        rotated = (rest[0] + apart[1], rest[1] - apart[0])
        other = (rest[0] - apart[1], rest[1] + apart[0])
        if self.inverse:
            rotated, other = other, rotated
        return [
            (first[0] + sums[0], first[1] + sums[1]),
            rotated,
            (first[0] - sums[0], first[1] - sums[1]),
            other,
        ]

    def _divide_by_terms(self, x: Array, terms: int) -> Array:
        return self._round_product(x * (((1 << self.bits) - 1) // terms))

    def _multiply_complex(self, a: Pair, b: Pair) -> Pair:
        real = self._round_product(a[0] * b[0] - a[1] * b[1])
        return real, self._round_product(a[0] * b[1] + a[1] * b[0])

    def _round_product(self, product: Array) -> Array:
        return self._wrap_to_dtype((product + (1 << (self.bits - 1))) >> self.bits)

    def _wrap_to_dtype(self, x: Array) -> Array:
        return x.astype(self._dtype).astype(np.int64)

    def _wrap(self, x: Array) -> Array:
        """Wrap as C arithmetic on these dtypes does: in words of at least 32 bits."""
        return x.astype(np.int32).astype(np.int64)


def _radix2(x: list[Pair]) -> list[Pair]:
    (a, b), (c, d) = x
    return [(a + c, b + d), (a - c, b - d)]


def _digit_reversal(radices: list[int]) -> Array:
    """Digit-reversal permutation for mixed radices."""
    order = np.zeros(1, np.int64)
    for radix in reversed(radices):
        order = np.concatenate([j + radix * order for j in range(radix)])
    return order

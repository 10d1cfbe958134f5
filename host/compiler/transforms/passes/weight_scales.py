"""Quantizes weights to few bits with scales of least error and error-compensated rounding.

Where samples are available, the rounding error of each column is compensated by the columns after
it (Frantar et al., "GPTQ", 2023).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.options import WeightBits

MOST: Mapping[WeightBits, int] = {"int8": 127, "int4": 7, "int3": 3, "int2": 1}

_DAMPING = 0.01  # of a channel's mean square, since samples do not cover everything
_BLOCK = 64  # columns whose errors are propagated beyond the block together
_BF16_DROPS, _BYTE_DROPS = 16, 20  # lowest bits of an f32's fraction
_BYTE_EXPONENTS = 15  # one less than 4 bits can encode: rounding may need the next
# Candidates, relative to the scale without clipping.
_SHARES, _SHARES_OF_FEWER_BITS = np.linspace(0.7, 1.0, 13), np.linspace(0.25, 1.0, 16)


def whole_scales_of(weights: Array, depth: int, most: int) -> Array:
    """Smallest scales f32 [n, k / depth] for weights [n, k] that clip no weight (quantized to
    `least_value` to `most`). If the negative range is larger, a negative scale assigns it to the
    larger weights. Scales of 4-bit and smaller weights are rounded up to bfloat16."""
    n, k = weights.shape
    parts = weights.reshape(n, k // depth, depth)
    above, below = np.maximum(parts.max(axis=2), 0), np.maximum(-parts.min(axis=2), 0)
    room = np.float32(most), np.float32(-least_value(most))
    size = np.maximum(np.minimum(above, below) / room[0], np.maximum(above, below) / room[1])
    size = np.where(size > 0, np.maximum(size, np.finfo(np.float32).tiny), 1).astype(np.float32)
    if most <= MOST["int4"]:
        size = _drop_low_bits(size, _BF16_DROPS, up=True)
    return np.where((room[1] > room[0]) & (above > below), -size, size)


def byte_scales(scale: Array) -> Array:
    """Round f32 scales to values that fit a byte: a sign, 3 fraction bits and a 4-bit exponent
    index. If the exponents span too wide a range, round to bfloat16 instead."""
    exponents = np.frexp(scale)[1]
    near = np.ptp(exponents) < _BYTE_EXPONENTS if scale.size else True
    return _drop_low_bits(scale, _BYTE_DROPS if near else _BF16_DROPS)


def _drop_low_bits(scale: Array, dropped: int, up: bool = False) -> Array:
    """Drop the lowest fraction bits of f32 scales: round to nearest or, if `up`, away from zero."""
    bits = np.ascontiguousarray(scale, np.float32).view(np.uint32)
    more = np.uint32((1 << dropped) - 1 if up else 1 << dropped - 1)
    return ((bits + more) >> np.uint32(dropped) << np.uint32(dropped)).view(np.float32)


def least_value(most: int) -> int:
    """Lowest quantized weight for a highest of `most`. 8-bit weights are symmetric: some kernels'
    16-bit sums of two products would overflow with −128."""
    return -most if most > MOST["int4"] else -most - 1


def scales_of(weights: Array, depth: int, most: int, squares: Array | None = None) -> Array:
    """Scales f32 [n, k / depth] for weights [n, k] that minimize the squared error, weighted by the
    mean square of each channel, `squares` [k]. With few bits it pays to clip the largest weights.
    Scales of 4-bit and smaller weights are bfloat16."""
    n, k = weights.shape
    parts = weights.reshape(n, k // depth, depth)
    factor = np.ones(k) if squares is None else squares + _DAMPING * squares.mean()
    factor = factor.astype(np.float32).reshape(k // depth, depth)
    whole = best = whole_scales_of(weights, depth, most)
    least = np.full(best.shape, np.inf)
    lowest = least_value(most)
    shares = (_SHARES_OF_FEWER_BITS if most < MOST["int4"] else _SHARES)[::-1]
    for share in (*shares, *(-shares if lowest < -most else ())):
        scale = np.float32(share) * whole
        small = np.finfo(np.float32).tiny
        scale = np.where(np.abs(scale) < small, np.copysign(small, scale), scale)
        scale = (_drop_low_bits(scale, _BF16_DROPS) if most <= MOST["int4"] else scale)[:, :, None]
        quantized = np.clip(np.rint(parts / scale), lowest, most)
        error = (factor * np.square(quantized * scale - parts)).sum(axis=2)
        best = np.where(error < least, scale[:, :, 0], best)
        least = np.minimum(error, least)
    return best


def rounded(weights: Array, scale: Array, most: int) -> Array:
    """Round weights [n, k] to s8 [n, k] with scales [n, groups]."""
    n, k = weights.shape
    parts = weights.reshape(n, scale.shape[1], -1)
    quantized = np.clip(np.rint(parts / scale[:, :, None]), least_value(most), most)
    return quantized.astype(np.int8).reshape(n, k)


def compensated(weights: Array, scale: Array, most: int, moment: Array) -> Array:
    """Like `rounded`, but later columns compensate for each column's error as far as the samples'
    products allow. `moment` [k, k] is the mean of x x^T over sample rows; channels with the largest
    squares are processed first."""
    n, k = weights.shape
    lowest = least_value(most)
    order = np.argsort(-np.diagonal(moment), kind="stable")
    wide = np.repeat(scale, k // scale.shape[1], axis=1)[:, order].astype(np.float64)
    left = weights[:, order].astype(np.float64)
    factor = _inverse_cholesky(moment[np.ix_(order, order)])
    quantized = np.zeros((n, k))
    for start in range(0, k, _BLOCK):
        end = min(start + _BLOCK, k)
        errors = np.zeros((n, end - start))
        for j in range(start, end):
            quantized[:, j] = np.clip(np.rint(left[:, j] / wide[:, j]), lowest, most)
            error = (left[:, j] - quantized[:, j] * wide[:, j]) / factor[j, j]
            left[:, j + 1 : end] -= np.outer(error, factor[j, j + 1 : end])
            errors[:, j - start] = error
        left[:, end:] -= errors @ factor[start:end, end:]
    made = np.empty((n, k), np.int8)
    made[:, order] = quantized.astype(np.int8)
    return made


def _inverse_cholesky(moment: Array) -> Array:
    """Upper triangular U with U^T U = inverse of the damped `moment`."""
    damped = moment.astype(np.float64)
    mean = float(np.diagonal(damped).mean())
    damped[np.diag_indices_from(damped)] += _DAMPING * mean if mean > 0 else 1.0
    return np.ascontiguousarray(np.linalg.cholesky(np.linalg.inv(damped)).T)

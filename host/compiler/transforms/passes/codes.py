"""Codes of few bits for floats: scales of least error, and each column's rounding made up for by
the columns after it, where samples show the products (Frantar et al., "GPTQ", 2023)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.options import WeightBits

MOST: Mapping[WeightBits, int] = {"int8": 127, "int4": 7}

_DAMPING = 0.01  # of the mean square of a channel: samples do not tell all of it
_BLOCK = 64  # columns whose roundings reach those after the block together
_BF16_DROPS, _BYTE_DROPS = 16, 20  # lowest bits of an f32's fraction
_BYTE_EXPONENTS = 15  # one less than 4 bits have: rounding may need the next
_SHARES = np.linspace(0.7, 1.0, 13)  # of the scale that reaches the largest value


def whole_scales_of(weights: Array, depth: int, most: int) -> Array:
    """Scales f32 [n, k / depth] for weights [n, k], the smallest by which no code of a group is out
    of range (`least_code` to `most`): where codes reach further below zero, a scale below zero
    gives that side to the larger weights. Those of 4 bits are bfloat16, the next above."""
    n, k = weights.shape
    parts = weights.reshape(n, k // depth, depth)
    above, below = np.maximum(parts.max(axis=2), 0), np.maximum(-parts.min(axis=2), 0)
    room = np.float32(most), np.float32(-least_code(most))
    size = np.maximum(np.minimum(above, below) / room[0], np.maximum(above, below) / room[1])
    size = np.where(size > 0, np.maximum(size, np.finfo(np.float32).tiny), 1).astype(np.float32)
    if most == MOST["int4"]:
        size = _shortened(size, _BF16_DROPS, up=True)
    return np.where((room[1] > room[0]) & (above > below), -size, size)


def byte_scales(scale: Array) -> Array:
    """Scales f32 rounded to such as a byte holds: a sign, 3 bits of fraction, and exponents that 4
    bits tell apart. Where they are further apart, to bfloat16."""
    exponents = np.frexp(scale)[1]
    near = np.ptp(exponents) < _BYTE_EXPONENTS if scale.size else True
    return _shortened(scale, _BYTE_DROPS if near else _BF16_DROPS)


def _shortened(scale: Array, dropped: int, up: bool = False) -> Array:
    """Scales f32 without the lowest bits of their fractions: rounded, or `up`, away from zero."""
    bits = np.ascontiguousarray(scale, np.float32).view(np.uint32)
    more = np.uint32((1 << dropped) - 1 if up else 1 << dropped - 1)
    return ((bits + more) >> np.uint32(dropped) << np.uint32(dropped)).view(np.float32)


def least_code(most: int) -> int:
    """The lowest code beside `most`. Of 8 bits it is as large: some kernels' 16-bit sums of two
    products have no room for another."""
    return -most if most > MOST["int4"] else -most - 1


def scales_of(weights: Array, depth: int, most: int, squares: Array | None = None) -> Array:
    """Scales f32 [n, k / depth] of codes up to `most` for weights [n, k], by the least sum of
    squared errors, each times the mean square of its channel, `squares` [k]: where codes are few,
    it pays to clip the largest weights. Those of 4 bits are bfloat16."""
    n, k = weights.shape
    parts = weights.reshape(n, k // depth, depth)
    factor = np.ones(k) if squares is None else squares + _DAMPING * squares.mean()
    factor = factor.astype(np.float32).reshape(k // depth, depth)
    whole = best = whole_scales_of(weights, depth, most)
    least = np.full(best.shape, np.inf)
    lowest = least_code(most)
    for share in (*_SHARES[::-1], *(-_SHARES[::-1] if lowest < -most else ())):
        scale = np.float32(share) * whole
        small = np.finfo(np.float32).tiny
        scale = np.where(np.abs(scale) < small, np.copysign(small, scale), scale)
        scale = (_shortened(scale, _BF16_DROPS) if most == MOST["int4"] else scale)[:, :, None]
        codes = np.clip(np.rint(parts / scale), lowest, most)
        error = (factor * np.square(codes * scale - parts)).sum(axis=2)
        best = np.where(error < least, scale[:, :, 0], best)
        least = np.minimum(error, least)
    return best


def rounded(weights: Array, scale: Array, most: int) -> Array:
    """Codes s8 [n, k] for weights [n, k] and scales [n, groups]."""
    n, k = weights.shape
    parts = weights.reshape(n, scale.shape[1], -1)
    codes = np.clip(np.rint(parts / scale[:, :, None]), least_code(most), most)
    return codes.astype(np.int8).reshape(n, k)


def compensated(weights: Array, scale: Array, most: int, moment: Array) -> Array:
    """As `rounded`, but each column's error is taken off by those after it as far as products with
    the samples show; `moment` [k, k]: the mean of x x^T over their rows. Channels with the largest
    squares go first."""
    n, k = weights.shape
    lowest = least_code(most)
    order = np.argsort(-np.diagonal(moment), kind="stable")
    wide = np.repeat(scale, k // scale.shape[1], axis=1)[:, order].astype(np.float64)
    left = weights[:, order].astype(np.float64)
    factor = _factor(moment[np.ix_(order, order)])
    codes = np.zeros((n, k))
    for start in range(0, k, _BLOCK):
        end = min(start + _BLOCK, k)
        errors = np.zeros((n, end - start))
        for j in range(start, end):
            codes[:, j] = np.clip(np.rint(left[:, j] / wide[:, j]), lowest, most)
            error = (left[:, j] - codes[:, j] * wide[:, j]) / factor[j, j]
            left[:, j + 1 : end] -= np.outer(error, factor[j, j + 1 : end])
            errors[:, j - start] = error
        left[:, end:] -= errors @ factor[start:end, end:]
    made = np.empty((n, k), np.int8)
    made[:, order] = codes.astype(np.int8)
    return made


def _factor(moment: Array) -> Array:
    """Upper triangular U with U^T U = the inverse of `moment`, damped."""
    damped = moment.astype(np.float64)
    mean = float(np.diagonal(damped).mean())
    damped[np.diag_indices_from(damped)] += _DAMPING * mean if mean > 0 else 1.0
    return np.ascontiguousarray(np.linalg.cholesky(np.linalg.inv(damped)).T)

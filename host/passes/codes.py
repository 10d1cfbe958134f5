"""Codes of few bits for floats, by scales of least error."""

from __future__ import annotations

import numpy as np

from edgekit.host.graph.types import Array

_SHARES = np.linspace(0.7, 1.0, 13)  # of the scale that reaches the largest value


def scales_of(weights: Array, depth: int, most: int) -> Array:
    """Scales f32 [n, k / depth] of codes -most to most for weights [n, k], by the least sum of
    squared errors: where codes are few, it pays to clip the largest weights."""
    n, k = weights.shape
    parts = weights.reshape(n, k // depth, depth)
    largest = np.abs(parts).max(axis=2)
    best, least = largest / most, np.full(largest.shape, np.inf)
    for share in _SHARES[::-1]:
        scale = np.maximum(share * largest / most, np.finfo(np.float32).tiny)[:, :, None]
        codes = np.clip(np.rint(parts / scale), -most, most)
        error = np.square(codes * scale - parts).sum(axis=2)
        best = np.where(error < least, scale[:, :, 0], best)
        least = np.minimum(error, least)
    best = np.where(largest > 0, best, 1)
    return np.maximum(best, np.finfo(np.float32).tiny).astype(np.float32)


def rounded(weights: Array, scale: Array, most: int) -> Array:
    """Codes s8 [n, k] for weights [n, k] and scales [n, groups]."""
    n, k = weights.shape
    parts = weights.reshape(n, scale.shape[1], -1)
    codes = np.clip(np.rint(parts / scale[:, :, None]), -most, most)
    return codes.astype(np.int8).reshape(n, k)

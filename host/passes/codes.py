"""Codes of few bits for floats, by scales of least error."""

from __future__ import annotations

import numpy as np

from edgekit.host.graph.types import Array

_SHARES = np.linspace(0.7, 1.0, 13)  # of the scale that reaches the largest value


def whole_scales_of(weights: Array, depth: int, most: int) -> Array:
    """Scales f32 [n, k / depth] for weights [n, k], by which the largest of a group is `most`."""
    n, k = weights.shape
    largest = np.abs(weights.reshape(n, k // depth, depth)).max(axis=2)
    scale = np.where(largest > 0, largest / np.float32(most), 1).astype(np.float32)
    return np.asarray(np.maximum(scale, np.finfo(np.float32).tiny))


def scales_of(weights: Array, depth: int, most: int) -> Array:
    """Scales f32 [n, k / depth] of codes -most to most for weights [n, k], by the least sum of
    squared errors: where codes are few, it pays to clip the largest weights."""
    n, k = weights.shape
    parts = weights.reshape(n, k // depth, depth)
    whole = best = whole_scales_of(weights, depth, most)
    least = np.full(best.shape, np.inf)
    for share in _SHARES[::-1]:
        scale = np.maximum(np.float32(share) * whole, np.finfo(np.float32).tiny)[:, :, None]
        codes = np.clip(np.rint(parts / scale), -most, most)
        error = np.square(codes * scale - parts).sum(axis=2)
        best = np.where(error < least, scale[:, :, 0], best)
        least = np.minimum(error, least)
    return best


def rounded(weights: Array, scale: Array, most: int) -> Array:
    """Codes s8 [n, k] for weights [n, k] and scales [n, groups]."""
    n, k = weights.shape
    parts = weights.reshape(n, scale.shape[1], -1)
    codes = np.clip(np.rint(parts / scale[:, :, None]), -most, most)
    return codes.astype(np.int8).reshape(n, k)

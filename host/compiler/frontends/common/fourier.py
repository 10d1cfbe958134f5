"""Fourier transforms as matrix products, for every format."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.ir.types import Array

LONGEST = 4096  # points of a transform


def waves(points: int, length: int, shown: int) -> tuple[Array, Array]:
    """Cosine and sine matrices [shown, length], f64, of a transform of `points` points."""
    turns = np.outer(np.arange(shown), np.arange(length)) % points
    angles = 2 * math.pi * turns / points
    return np.cos(angles), np.sin(angles)

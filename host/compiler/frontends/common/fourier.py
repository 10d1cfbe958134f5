"""Fourier transforms as products with matrices of sines, for every format."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.ir.types import Array

LONGEST = 4096  # points of a transform


def waves(points: int, length: int, shown: int) -> tuple[Array, Array]:
    """Cosines and sines [shown, length] of a transform of so many points, in f64."""
    turns = np.outer(np.arange(shown), np.arange(length)) % points
    angles = 2 * math.pi * turns / points
    return np.cos(angles), np.sin(angles)

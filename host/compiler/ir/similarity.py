"""Similarity of outputs of two graphs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir.types import Array

_NONE = 1e-30


def cosine(want: Array, found: Array) -> float:
    """Cosine similarity of two arrays; 1.0 if either is (nearly) zero, -1.0 if not finite."""
    want, found = want.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        sizes = float(np.linalg.norm(want) * np.linalg.norm(found))
        made = 1.0 if sizes <= _NONE else float(np.vdot(want, found)) / sizes
    return made if np.isfinite(made) else -1.0


def least_cosine(want: Mapping[str, Array], found: Mapping[str, Array]) -> float:
    """Lowest cosine similarity of all outputs, matched by name."""
    return min((cosine(y, found[name]) for name, y in want.items() if y.size), default=1.0)

"""Vectors of pictures and texts, and how alike they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

_MOST = 45  # pairs that are listed, the most alike first

Named = tuple[str, tuple[float, ...]]


def cosine_lines(found: Sequence[Named]) -> Iterator[str]:
    """The cosine of the vectors of each two; the vectors have length 1."""
    values = np.array([vector for _, vector in found])
    pairs = [(float(values[i] @ values[k]), i, k) for i, k in combinations(range(len(found)), 2)]
    pairs.sort(key=lambda pair: -pair[0])
    if pairs:
        yield f"cosine   of {len(found)} vectors of {values.shape[1]} values"
    for cosine, i, k in pairs[:_MOST]:
        yield f"  {cosine:7.4f}  {found[i][0]}  {found[k][0]}"
    if len(pairs) > _MOST:
        yield f"  and {len(pairs) - _MOST} pairs that are less alike"

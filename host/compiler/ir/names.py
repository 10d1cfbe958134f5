"""Unique names for tensors and nodes that passes and importers add."""

from __future__ import annotations


def fresh_name(stem: str, taken: set[str]) -> str:
    """Return `stem` or, if taken, a free name stem_N with N ≥ 2, and add it to `taken`.

    Files may use one name for everything, so N is found by exponential and then binary search.
    """
    name = stem
    if stem in taken:
        last, free = 1, 2
        while f"{stem}_{free}" in taken:
            last, free = free, 2 * free
        while free - last > 1:
            middle = (last + free) // 2
            last, free = (middle, free) if f"{stem}_{middle}" in taken else (last, middle)
        name = f"{stem}_{free}"
    taken.add(name)
    return name

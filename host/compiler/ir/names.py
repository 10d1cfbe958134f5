"""Names for what a pass or an importer adds to a graph."""

from __future__ import annotations


def fresh_name(stem: str, taken: set[str]) -> str:
    """`stem`, or one of stem_2, stem_3, ... that is not taken; it is from now on.

    Files may use one name for everything: the search doubles its steps, then halves them.
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

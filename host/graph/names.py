"""Names for what a pass or an importer adds to a graph."""

from __future__ import annotations


def fresh_name(stem: str, taken: set[str]) -> str:
    """`stem`, or the first of stem_2, stem_3, ... that is not taken; it is from now on."""
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    taken.add(name)
    return name

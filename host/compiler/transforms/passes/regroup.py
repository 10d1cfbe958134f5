"""Reshapes of a transposed tensor that need no transposing first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.host.compiler.ir.types import Shape


@dataclass(frozen=True)
class Regrouped:
    """`shape` of the tensor as it lies, and the order in which its axes are read."""

    shape: Shape
    order: tuple[int, ...]


@dataclass(frozen=True)
class _Group:
    """Neighboring axes of one side that hold the same elements as those of the other."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def regroup(seen: Shape, order: tuple[int, ...], target: Shape) -> Regrouped | None:
    """A tensor read as shape `seen` (axis i lies at order[i]) is reshaped to `target`.

    None where the elements would have to move: where axes that are merged do not lie side by
    side.
    """
    groups = _groups(seen, target)
    if groups is None:
        return None
    lies = sorted((order[i], i) for i in range(len(seen)) if seen[i] != 1)
    rank_of = {axis: rank for rank, (_, axis) in enumerate(lies)}
    starts: list[tuple[int, _Group]] = []
    for group in groups:
        ranks = [rank_of[i] for i in group.before]
        if ranks != list(range(ranks[0], ranks[0] + len(ranks))):
            return None
        starts.append((ranks[0], group))
    starts.sort(key=lambda entry: entry[0])
    # Axes of size 1 may lie anywhere: in front.
    axes = [i for i, d in enumerate(target) if d == 1]
    axes += [i for _, group in starts for i in group.after]
    place = {axis: at for at, axis in enumerate(axes)}
    return Regrouped(tuple(target[i] for i in axes), tuple(place[i] for i in range(len(target))))


def _groups(seen: Shape, target: Shape) -> list[_Group] | None:
    """The smallest groups of axes, other than those of size 1, with equal products."""
    if math.prod(seen) != math.prod(target) or 0 in seen:
        return None
    mine = [i for i, d in enumerate(seen) if d != 1]
    theirs = [i for i, d in enumerate(target) if d != 1]
    groups = []
    while mine:
        before, after = [mine.pop(0)], [theirs.pop(0)]
        left, right = seen[before[0]], target[after[0]]
        while left != right:
            if left < right:
                before.append(mine.pop(0))
                left *= seen[before[-1]]
            else:
                after.append(theirs.pop(0))
                right *= target[after[-1]]
        groups.append(_Group(tuple(before), tuple(after)))
    return groups

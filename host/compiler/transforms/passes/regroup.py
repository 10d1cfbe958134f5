"""Reshapes transposed tensors without transposing first, where that is possible."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.host.compiler.ir.types import Shape


@dataclass(frozen=True)
class Regrouped:
    """The new shape of the stored tensor, and the axis order of its view."""

    shape: Shape
    order: tuple[int, ...]


@dataclass(frozen=True)
class _Group:
    """Neighboring axes before and after a reshape that cover the same elements."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def regroup(seen: Shape, order: tuple[int, ...], target: Shape) -> Regrouped | None:
    """Reshape a view of shape `seen` (axis i is stored at order[i]) to `target`.

    Returns None if elements would have to move because merged axes are not adjacent in memory.
    """
    groups = _match_axis_groups(seen, target)
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
    # Axes of size 1 may go anywhere; put them first.
    axes = [i for i, d in enumerate(target) if d == 1]
    axes += [i for _, group in starts for i in group.after]
    place = {axis: at for at, axis in enumerate(axes)}
    return Regrouped(tuple(target[i] for i in axes), tuple(place[i] for i in range(len(target))))


def order_within_groups(
    seen: Shape, order: tuple[int, ...], target: Shape
) -> tuple[int, ...] | None:
    """The order in which `regroup` reshapes such a view if axes move only next to each other, as
    in a shuffle of channels; None if merged axes have others between them in memory."""
    groups = _match_axis_groups(seen, target)
    if groups is None:
        return None
    lies = sorted(order[i] for i in range(len(seen)) if seen[i] != 1)
    made = list(order)
    for group in groups:
        places = sorted(order[i] for i in group.before)
        first = lies.index(places[0])
        if lies[first : first + len(places)] != places:
            return None
        for axis, place in zip(group.before, places, strict=True):
            made[axis] = place
    return tuple(made)


def _match_axis_groups(seen: Shape, target: Shape) -> list[_Group] | None:
    """Minimal groups of axes with equal products, ignoring axes of size 1."""
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

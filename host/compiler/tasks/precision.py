"""Average precision of boxes as COCO's evaluation defines it: bounding boxes of all sizes, at most
100 of a picture, overlaps of 0.50 to 0.95, precision at 101 points of recall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgekit.host.compiler.ir.types import Array

_OVERLAPS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0, 1, 101)
_MOST = 100  # boxes of a picture and category

Corners = tuple[float, float, float, float]


@dataclass(frozen=True)
class TrueBox:
    """A true box of a picture: a crowd is a region where boxes count neither way."""

    category: int
    corners: Corners
    crowd: bool = False


@dataclass(frozen=True)
class FoundBox:
    category: int
    score: float
    corners: Corners


@dataclass(frozen=True)
class Precision:
    """Means over categories: `every` over all overlaps, `at_50` and `at_75` at one, and the mean
    share of the true boxes that was found. NaN without true boxes."""

    every: float
    at_50: float
    at_75: float
    recall: float


@dataclass
class _Category:
    """Of all pictures: scores, matches [overlaps, boxes], and which boxes do not count."""

    right: int = 0
    scores: list[Array] = field(default_factory=list)
    matched: list[Array] = field(default_factory=list)
    ignored: list[Array] = field(default_factory=list)


def precision_of(pictures: Iterable[tuple[Sequence[TrueBox], Sequence[FoundBox]]]) -> Precision:
    """Compares boxes found in pictures with the true ones."""
    categories: dict[int, _Category] = {}
    for right, found in pictures:
        for number in {box.category for box in right} | {box.category for box in found}:
            _match(
                categories.setdefault(number, _Category()),
                [box for box in right if box.category == number],
                [box for box in found if box.category == number],
            )
    curves, recalls = [], []
    for category in categories.values():
        if category.right:
            curve, recall = _curve(category)
            curves.append(curve)
            recalls.append(recall)
    if not curves:
        return Precision(*[float("nan")] * 4)
    means = np.mean(curves, axis=(0, 2))
    return Precision(float(means.mean()), float(means[0]), float(means[5]), float(np.mean(recalls)))


def _match(into: _Category, right: Sequence[TrueBox], found: Sequence[FoundBox]) -> None:
    """Gives each box, best first, the free true box that it overlaps most."""
    right = sorted(right, key=lambda box: box.crowd)
    scores = np.array([box.score for box in found])
    order = np.argsort(-scores, kind="stable")[:_MOST]
    overlap = _overlaps([found[i].corners for i in order], right)
    matched = np.zeros((len(_OVERLAPS), len(order)), bool)
    ignored = np.zeros_like(matched)
    for level, least in enumerate(_OVERLAPS):
        taken = np.zeros(len(right), bool)
        for row in range(len(order)):
            best = _best_of(overlap[row], right, taken, min(least, 1 - 1e-10))
            if best is not None:
                taken[best] = matched[level, row] = True
                ignored[level, row] = right[best].crowd
    into.right += sum(not box.crowd for box in right)
    into.scores.append(scores[order])
    into.matched.append(matched)
    into.ignored.append(ignored)


def _best_of(overlap: Array, right: Sequence[TrueBox], taken: Array, least: float) -> int | None:
    """A crowd, which comes last, is taken only if nothing else is, and by any number of boxes."""
    best = None
    for i, box in enumerate(right):
        if box.crowd and best is not None and not right[best].crowd:
            break
        if (box.crowd or not taken[i]) and overlap[i] >= least:
            best, least = i, overlap[i]
    return best


def _overlaps(found: Sequence[Corners], right: Sequence[TrueBox]) -> Array:
    """Intersection over union [found, right]; of a crowd, over the found box alone."""
    a = np.array(found, np.float64).reshape(-1, 1, 4)
    b = np.array([box.corners for box in right], np.float64).reshape(1, -1, 4)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    common = np.prod(np.maximum(sides, 0), axis=-1)
    area, other = (np.prod(each[..., 2:] - each[..., :2], axis=-1) for each in (a, b))
    crowd = np.array([box.crowd for box in right], bool)
    whole = np.where(crowd[None], area, area + other - common)
    share: Array = np.divide(common, whole, out=np.zeros_like(common), where=whole > 0)
    return share


def _curve(category: _Category) -> tuple[Array, float]:
    """The precision at each overlap and recall, and the mean recall of all boxes."""
    order = np.argsort(-np.concatenate(category.scores), kind="stable")
    matched = np.concatenate(category.matched, axis=1)[:, order]
    counts = ~np.concatenate(category.ignored, axis=1)[:, order]
    right = np.cumsum(matched & counts, axis=1, dtype=np.float64)
    wrong = np.cumsum(~matched & counts, axis=1, dtype=np.float64)
    made = np.zeros((len(_OVERLAPS), len(_RECALLS)))
    for level, (good, bad) in enumerate(zip(right, wrong, strict=True)):
        share = good / np.maximum(good + bad, np.spacing(1))
        best_later = np.maximum.accumulate(share[::-1])[::-1]
        at = np.searchsorted(good / category.right, _RECALLS, side="left")
        known = at < len(best_later)
        made[level, known] = best_later[at[known]]
    last = right[:, -1] / category.right if right.shape[1] else np.zeros(len(_OVERLAPS))
    return made, float(last.mean())


def true_boxes(annotations: Iterable[Mapping[str, object]]) -> dict[int, list[TrueBox]]:
    """The boxes of COCO's annotations by the number of the picture. Raises KeyError, TypeError or
    ValueError if they are not such."""
    made: dict[int, list[TrueBox]] = {}
    for each in annotations:
        x, y, width, height = map(float, each["bbox"])  # type: ignore[call-overload]
        box = TrueBox(
            int(each["category_id"]),  # type: ignore[call-overload]
            (x, y, x + width, y + height),
            each.get("iscrowd") == 1,
        )
        made.setdefault(int(each["image_id"]), []).append(box)  # type: ignore[call-overload]
    return made

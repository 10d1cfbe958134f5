"""Object detections from boxes and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_rank, operand
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["DetectionOutput"]

FIELDS = 7  # image, class, score, left, top, right, bottom
_ENTRIES_LIMIT = 1 << 24
_BACKGROUND_NONE = -1


@dataclass(frozen=True)
class DetectionOutput(Operator):
    """Caffe's DetectionOutput layer, on decoded boxes.

    ins: boxes f32 [b, n, 1 or classes, 4] as corners (x, y, x, y), scores f32 [b, classes, n].
    Output: [1, 1, b · keep, 7]; `keep` rows per image, sorted by class, then by score, padded with
    rows of -1. In each class but `background`, the `top_k` best scores above `threshold` compete: a
    box is dropped if its intersection over union with a better remaining one exceeds `overlap`.
    Then the `keep` best of all classes remain. Ties go to the lower class, then to the lower box
    index. With `single`, a box competes only in the class of its best score; with `across`, too, it
    competes with those of other classes, of which the `top_k` best remain in all.
    """

    kind: ClassVar[str] = "detection_output"
    jumps = True
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    keep: int = 1
    top_k: int = 1
    threshold: float = 0.0
    overlap: float = 0.5
    background: int = _BACKGROUND_NONE
    single: bool = False
    across: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        boxes, scores = operand(ins, 0, "boxes"), operand(ins, 1, "scores")
        need_rank(boxes, 4, "boxes")
        need_rank(scores, 3, "scores")
        for x, what in ((boxes, "boxes"), (scores, "scores")):
            need_dtype(x, (DType.F32,), what)
            need_positive(x.shape, what)
        b, classes, n = scores.shape
        if boxes.shape not in ((b, n, 1, 4), (b, n, classes, 4)):
            raise ShapeError(
                f"expected boxes [{b}, {n}, 1 or {classes}, 4], found {list(boxes.shape)}"
            )
        need_positive((self.keep, self.top_k), "numbers of boxes")
        if self.across and not (self.single and boxes.shape[2] == 1):
            raise ShapeError("expected a box with one class to compete across classes, found more")
        if max(self.keep * b, self.entries(classes, n)) > _ENTRIES_LIMIT:
            raise ShapeError(f"expected at most {_ENTRIES_LIMIT} detections, found more")
        return [((1, 1, b * self.keep, FIELDS), DType.F32)]

    def entries(self, classes: int, n: int) -> int:
        """Maximum number of simultaneous candidates per image."""
        if self.single:
            return n
        return classes * min(self.top_k, n) + n

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        boxes, scores = required(x, 0), required(x, 1)
        y = np.full((scores.shape[0], self.keep, FIELDS), -1, np.float32)
        for image in range(scores.shape[0]):
            found: list[tuple[float, ...]] = []
            each, labels = scores[image].copy(), range(scores.shape[1])
            each[np.isnan(each)] = -np.inf
            if self.background in labels:
                each[self.background] = -np.inf
            best = each.argmax(0)
            if self.single:
                each[np.arange(len(each))[:, None] != best] = -np.inf
            if self.across:
                order = np.argsort(best, kind="stable")
                selected = self._suppress_overlaps(boxes[image, order, 0], each.max(0)[order])
                chosen = sorted((int(best[i]), -each[best[i], i], i) for i in order[selected])
                found = [(image, n, -score, *boxes[image, i, 0]) for n, score, i in chosen]
                labels = range(0)
            for label in labels:
                own = boxes[image, :, label if boxes.shape[2] > 1 else 0]
                selected = self._suppress_overlaps(own, each[label])
                found += [(image, label, each[label, i], *own[i]) for i in selected]
            order = np.argsort([-row[2] for row in found], kind="stable")[: self.keep]
            for place, at in enumerate(sorted(order)):
                y[image, place] = found[at]
        return [y.reshape(outs[0].shape)]

    def _suppress_overlaps(self, boxes: Array, scores: Array) -> list[int]:
        """At most `keep` boxes of a class, best first: others cannot be among the best of all."""
        above = np.flatnonzero(scores > np.float32(self.threshold))
        left = above[np.argsort(-scores[above], kind="stable")][: self.top_k]
        areas = _area(boxes)
        selected: list[int] = []
        while left.size and len(selected) < self.keep:
            best, left = left[0], left[1:]
            selected.append(int(best))
            low = np.maximum(boxes[best, :2], boxes[left, :2])
            high = np.minimum(boxes[best, 2:], boxes[left, 2:])
            shared = _area(np.concatenate([low, high], -1))
            with np.errstate(all="ignore"):
                both = areas[best] + areas[left] - shared
                left = left[~(shared > np.float32(self.overlap) * both)]
        return selected


def _area(boxes: Array) -> Array:
    """Areas of boxes given by corners [..., 4]; 0 if the corners are reversed."""
    size = np.maximum(boxes[..., 2:] - boxes[..., :2], np.float32(0))
    product: Array = size[..., 0] * size[..., 1]
    return product

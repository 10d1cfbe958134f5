"""Non-maximum suppression: selects among overlapping boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_elements, need_positive, operand
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["SelectBoxes"]


@dataclass(frozen=True)
class SelectBoxes(Operator):
    """ins: boxes [b, n, 4] (two corners: y, x, y, x); per class, box indices sorted by score
    [b, c, n] (s32 or s64) and the scores in that order [b, c, n], largest first.

    Output [b, c, limit]: the selected boxes in that order, padded with -1. A class ends at the
    first score below `least` (with `above`, also at one equal to it). A box that overlaps a
    selected one by more than `overlap` (intersection over union) is skipped. All in f32.
    """

    kind: ClassVar[str] = "select_boxes"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    limit: int = 1
    overlap: float = 0.5
    least: float = 0.0
    above: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        boxes, order, scores = (
            operand(ins, i, name) for i, name in enumerate(("boxes", "order", "scores"))
        )
        need_dtype(boxes, (DType.F32,), "boxes")
        need_dtype(order, (DType.I32, DType.I64), "order")
        need_dtype(scores, (DType.F32,), "scores")
        need_positive((*boxes.shape, *order.shape, self.limit), "sizes")
        if (
            len(boxes.shape) != 3
            or boxes.shape[2] != 4
            or len(order.shape) != 3
            or (order.shape[0], order.shape[2]) != boxes.shape[:2]
            or scores.shape != order.shape
        ):
            raise ShapeError(
                f"expected boxes [b, n, 4] with orders and scores [b, c, n], found "
                f"{list(boxes.shape)}, {list(order.shape)} and {list(scores.shape)}"
            )
        shape = (*order.shape[:2], self.limit)
        need_elements(shape)
        return [(shape, order.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        boxes, order, scores = (required(x, i) for i in range(3))
        y = np.full(outs[0].shape, -1, outs[0].dtype.numpy)
        for batch, group in np.ndindex(order.shape[:2]):
            selected = self._suppress_overlaps(
                boxes[batch], order[batch, group], scores[batch, group]
            )
            y[batch, group, : len(selected)] = selected
        return [y]

    def _suppress_overlaps(self, boxes: Array, order: Array, scores: Array) -> list[int]:
        least, selected = np.float32(self.least), list[int]()
        enough = scores > least if self.above else scores >= least
        end = len(enough) if enough.all() else int(np.argmin(enough))
        left = np.clip(order, 0, len(boxes) - 1)[:end]
        while left.size and len(selected) < self.limit:
            best, left = left[0], left[1:]
            selected.append(int(best))
            left = left[~(overlaps(boxes[left], boxes[best]) > np.float32(self.overlap))]
        return selected


def overlaps(boxes: Array, other: Array) -> Array:
    """Intersection over union of each of [k, 4] with one box; 0 if either is empty."""
    low = np.maximum(boxes[:, :2], other[:2])
    high = np.minimum(boxes[:, 2:], other[2:])
    sides = np.maximum(high - low, np.float32(0))
    common = sides[:, 0] * sides[:, 1]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    area = (other[2] - other[0]) * (other[3] - other[1])
    with np.errstate(all="ignore"):
        ratio = common / (areas + area - common)
    return np.where((areas <= 0) | (area <= 0), np.float32(0), ratio)

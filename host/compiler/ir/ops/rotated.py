"""Selection of rotated boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_positive,
    need_rank,
    need_shape,
    operand,
)
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["SelectRotated"]

_FIELDS = 6
_MOST = 1 << 14  # boxes, each of which is compared with all


@dataclass(frozen=True)
class SelectRotated(Operator):
    """ins: boxes f32 [n, 6], best first: class, x, y, and the covariance of a uniform distribution
    over the box (xx, yy, xy); scores f32 [n], largest first.

    Output s64 [1, 1, limit]: the selected boxes in that order, padded with -1. The first score that
    is not above `least` ends them. A box is skipped if one before it, selected or not, is of its
    class and overlaps it by `overlap` or more. The overlap is one minus the Hellinger distance of
    the two distributions, as normal ones (Murrugarra-Llerena et al., 2022).
    """

    kind: ClassVar[str] = "select_rotated"
    elementwise = False
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    limit: int = 1
    overlap: float = 0.5
    least: float = 0.0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        boxes, scores = operand(ins, 0, "boxes"), operand(ins, 1, "scores")
        need_rank(boxes, 2, "boxes")
        need_dtype(boxes, (DType.F32,), "boxes")
        need_dtype(scores, (DType.F32,), "scores")
        need_positive((*boxes.shape, self.limit), "sizes")
        if boxes.shape[1] != _FIELDS or max(boxes.shape[0], self.limit) > _MOST:
            raise ShapeError(
                f"expected at most {_MOST} boxes of {_FIELDS} numbers, found {list(boxes.shape)}"
            )
        need_shape(scores, boxes.shape[:1], "scores")
        if not 0 < self.overlap < 1:
            raise ShapeError(f"expected an overlap between 0 and 1, found {self.overlap}")
        return [((1, 1, self.limit), DType.I64)]

    @property
    def most(self) -> float:
        """The Bhattacharyya distance at which boxes overlap just enough."""
        return -math.log(1 - (1 - self.overlap) ** 2)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        boxes, scores = required(x, 0), required(x, 1)
        enough = scores > np.float32(self.least)
        boxes = boxes[: len(enough) if enough.all() else int(np.argmin(enough))]
        y = np.full(outs[0].shape, -1, np.int64)
        kept = []
        for i, box in enumerate(boxes):
            if not (distances(boxes[:i], box) <= np.float32(self.most)).any():
                kept.append(i)
        kept = kept[: self.limit]
        y[0, 0, : len(kept)] = kept
        return [y]


def distances(boxes: Array, other: Array) -> Array:
    """The Bhattacharyya distance of each of [k, 6] to one box; infinite for other classes."""
    across, down = boxes[:, 1] - other[1], boxes[:, 2] - other[2]
    xx, yy, xy = (boxes[:, i] + other[i] for i in (3, 4, 5))
    with np.errstate(all="ignore"):
        both = xx * yy - xy * xy
        apart = (xx * down * down + yy * across * across) / 4 - xy * across * down / 2
        sizes = np.sqrt(_determinants(boxes) * _determinants(other[None]))
        found = apart / both + np.log(both / (4 * sizes)) / 2
    return np.where(boxes[:, 0] == other[0], found, np.float32(np.inf))


def _determinants(boxes: Array) -> Array:
    product: Array = boxes[:, 3] * boxes[:, 4] - boxes[:, 5] * boxes[:, 5]
    return np.maximum(product, np.float32(0))

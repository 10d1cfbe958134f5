"""Masks of the objects that a detector found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_elements,
    need_positive,
    need_rank,
    operand,
)
from edgekit.host.compiler.ir.ops.detection import FIELDS
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["InstanceMasks"]

_MOST_CELLS = 1 << 20  # of a map: exact in f32


@dataclass(frozen=True)
class InstanceMasks(Operator):
    """Each mask is a sum of maps that all objects share (Bolya et al., 2019), where its box is.

    ins: rows f32 [1, 1, n, 7 + k]: image, class, score, left, top, right, bottom, and the weights
    of the maps; maps f32 [k, h, w]. Output s8 [n, h, w]: `steps` times the sum, rounded half up
    and saturated, in the cells that the box touches and those next to them; -128 elsewhere, and
    in all cells of rows of class -1 or a score below `least`. `across` and `down` are the width
    and height of a cell, in the units of the boxes.
    """

    kind: ClassVar[str] = "instance_masks"
    jumps = True
    elementwise = False
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    across: float = 4.0
    down: float = 4.0
    steps: float = 16.0
    least: float = 0.0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        rows, maps = operand(ins, 0, "rows"), operand(ins, 1, "maps")
        need_rank(rows, 4, "rows")
        need_rank(maps, 3, "maps")
        need_dtype(rows, (DType.F32,), "rows")
        need_dtype(maps, (DType.F32,), "maps")
        need_positive((*rows.shape, *maps.shape), "sizes")
        _, _, n, width = rows.shape
        if rows.shape[:2] != (1, 1) or width != FIELDS + maps.shape[0]:
            raise ShapeError(
                f"expected rows [1, 1, n, {FIELDS + maps.shape[0]}] for {maps.shape[0]} maps, "
                f"found {list(rows.shape)}"
            )
        if math.prod(maps.shape[1:]) > _MOST_CELLS:
            raise ShapeError(f"expected maps of at most {_MOST_CELLS} cells, found more")
        shape = (n, *maps.shape[1:])
        need_elements(shape)
        return [(shape, DType.I8)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        rows, maps = required(x, 0)[0, 0], required(x, 1).astype(np.float64)
        _, h, w = maps.shape
        y = np.full(outs[0].shape, -128, np.int8)
        for row, mask in zip(rows, y, strict=True):
            if not (row[1] >= 0 and row[2] >= np.float32(self.least)):
                continue
            left, right = _cells(row[3], row[5], self.across, w)
            top, bottom = _cells(row[4], row[6], self.down, h)
            total = np.zeros((max(bottom - top, 0), max(right - left, 0)))
            for weight, each in zip(row[FIELDS:], maps, strict=True):
                total += np.float64(weight) * each[top:bottom, left:right]
            total = np.floor(total * np.float64(np.float32(self.steps)) + 0.5)
            with np.errstate(all="ignore"):
                kept = np.where(total > -128, np.minimum(total, 127), -128)
                mask[top:bottom, left:right] = kept
        return [y]


def _cells(low: float, high: float, size: float, count: int) -> tuple[int, int]:
    """The first cell of a range, and the one behind the last. NaN is no cell."""
    first, last = (float(np.float32(edge) / np.float32(size)) for edge in (low, high))
    start = count if math.isnan(first) else int(min(max(first, 0), count)) - 1
    end = 0 if math.isnan(last) else int(min(max(last, 0), count)) + 2
    return max(start, 0), min(end, count)

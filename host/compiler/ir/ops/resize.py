"""Image resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.kernel_facts import RESIZE_BITS
from edgekit.host.compiler.ir.checks import (
    IMAGES,
    need_dtype,
    need_positive,
    need_rank,
    need_scale,
    operand,
)
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["ResizeBilinear"]


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The two source rows (or columns) per output row (or column), and the second one's weight."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    weight: Array


@dataclass(frozen=True)
class Band:
    """Output rows (or columns) from `begin` on, of a resize from `source` to `target` rows; the
    input begins with row `origin`."""

    source: int
    target: int
    begin: int = 0
    origin: int = 0


@dataclass(frozen=True)
class ResizeBilinear(Operator):
    """Floats and u8 are interpolated in f32 (u8 rounds halves up), s8 and s16 in Q10. s8 that
    rounds once is interpolated in f32, and rounds halves to even.

    `bands`: the rows and columns that a part computes; None for all.
    """

    kind: ClassVar[str] = "resize_bilinear"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "window"
    on_quantized = OnQuantized.KEEPS
    half = Half.YES
    size: tuple[int, int] = (1, 1)
    align_corners: bool = False
    half_pixel_centers: bool = False
    bands: tuple[Band | None, Band | None] = (None, None)

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "image")
        need_rank(x, 4, "image")
        need_dtype(x, (*IMAGES, DType.F16), "image")
        need_scale(x, "image")
        need_positive((*x.shape, *self.size), "image and size")
        if self.align_corners and self.half_pixel_centers:
            raise ShapeError("expected align_corners or half_pixel_centers, found both")
        return [((x.shape[0], *self.size, x.shape[3]), x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        image = required(x, 0)
        if self.is_fixed_point(outs[0]):
            return [self._resize_integer(image)]
        y = self._resize_float(image.astype(np.float32))
        if outs[0].dtype is DType.I8:
            return [np.rint(y).astype(np.int8)]
        if outs[0].dtype is DType.U8:
            return [(y + np.float32(0.5)).astype(np.uint8)]
        return [y.astype(image.dtype)]

    @staticmethod
    def is_fixed_point(y: Tensor) -> bool:
        """Whether weights are multiples of 1/1024, as in LiteRT."""
        once = y.quant is not None and y.quant.rounds_once
        return y.dtype is DType.I16 or (y.dtype is DType.I8 and not once)

    def _resize_float(self, image: Array) -> Array:
        rows = self._samples(0, image.shape[1], self._sample_positions)
        columns = self._samples(1, image.shape[2], self._sample_positions)
        dy, dx = rows.weight[None, :, None, None], columns.weight[None, None, :, None]
        top, bottom = image[:, rows.low], image[:, rows.high]
        one = np.float32(1)
        y: Array = (
            top[:, :, columns.low] * (one - dy) * (one - dx)
            + bottom[:, :, columns.low] * dy * (one - dx)
            + top[:, :, columns.high] * (one - dy) * dx
            + bottom[:, :, columns.high] * dy * dx
        )
        return y

    def step(self, source: int, target: int) -> np.float32:
        """Input pixels per output pixel."""
        if self.align_corners and target > 1:
            return np.float32(source - 1) / np.float32(target - 1)
        return np.float32(source) / np.float32(target)

    def fixed_step(self, source: int, target: int) -> tuple[int, int]:
        """Return the step and the position of output pixel 0, in 1024ths."""
        one = 1 << RESIZE_BITS
        step = (one * source + target // 2) // target
        if self.align_corners and target > 1:
            step = (one * (source - 1) + (target - 1) // 2) // (target - 1)
        return step, (step // 2 - one // 2 if self.half_pixel_centers else 0)

    def along(self, axis: int, source: int) -> Band:
        """The rows (axis 0) or columns (1) that this operator computes; `source`: the input's."""
        return self.bands[axis] or Band(source, self.size[axis])

    def band(
        self, axis: int, x: Tensor, y: Tensor, begin: int, end: int
    ) -> tuple[ResizeBilinear, int, int]:
        """The operator for rows (axis 0) or columns (1) of y from `begin` to `end` (excluded) and
        the range of x that it reads."""
        found = self._fixed_samples if self.is_fixed_point(y) else self._sample_positions
        samples = self._samples(axis, x.shape[1 + axis], found)
        first, last = int(samples.low[begin]), int(samples.high[end - 1]) + 1
        whole = self.along(axis, x.shape[1 + axis])
        part = replace(whole, begin=whole.begin + begin, origin=whole.origin + first)
        size, bands = [*self.size], [*self.bands]
        size[axis], bands[axis] = end - begin, part
        made = replace(self, size=(size[0], size[1]), bands=(bands[0], bands[1]))
        return made, first, last

    def _samples(
        self, axis: int, source: int, positions: Callable[[int, int], SourceRows]
    ) -> SourceRows:
        """The samples of one axis, relative to the part of the input that is there."""
        band = self.along(axis, source)
        whole = positions(band.source, band.target)
        mine = slice(band.begin, band.begin + self.size[axis])
        low, high = whole.low[mine] - band.origin, whole.high[mine] - band.origin
        return SourceRows(low, high, whole.weight[mine])

    def _sample_positions(self, source: int, target: int) -> SourceRows:
        scale = self.step(source, target)
        index = np.arange(target, dtype=np.float32)
        half = np.float32(0.5)
        position = (index + half) * scale - half if self.half_pixel_centers else index * scale
        floor = np.floor(position).astype(np.int64)
        low = np.maximum(floor, 0)
        high = np.minimum(np.ceil(position).astype(np.int64), source - 1)
        return SourceRows(low, high, position - low.astype(np.float32))

    def _resize_integer(self, image: Array) -> Array:
        rows = self._samples(0, image.shape[1], self._fixed_samples)
        columns = self._samples(1, image.shape[2], self._fixed_samples)
        dy, dx = rows.weight[None, :, None, None], columns.weight[None, None, :, None]
        wide = image.astype(np.int64)
        one = np.int64(1 << RESIZE_BITS)
        top, bottom = wide[:, rows.low], wide[:, rows.high]
        total = (
            top[:, :, columns.low] * (one - dy) * (one - dx)
            + bottom[:, :, columns.low] * dy * (one - dx)
            + top[:, :, columns.high] * (one - dy) * dx
            + bottom[:, :, columns.high] * dy * dx
        )
        half = np.where(total > 0, 1, -1) << (2 * RESIZE_BITS - 1)
        rounded = np.sign(total + half) * (np.abs(total + half) >> (2 * RESIZE_BITS))
        quantized: Array = rounded.astype(image.dtype)
        return quantized

    def _fixed_samples(self, source: int, target: int) -> SourceRows:
        one = 1 << RESIZE_BITS
        step, offset = self.fixed_step(source, target)
        position = np.arange(target, dtype=np.int64) * step + offset
        low = np.maximum(position >> RESIZE_BITS, 0)
        high = np.minimum((position + one - 1) >> RESIZE_BITS, source - 1)
        return SourceRows(low, high, position - (low << RESIZE_BITS))

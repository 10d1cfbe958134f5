"""Pooling of regions of images, whose corners are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.device.runtime.kernel_facts import ROI_SAMPLES
from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_elements,
    need_positive,
    need_rank,
    need_shape,
    operand,
)
from edgekit.host.compiler.ir.sums import F32, required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["MaxRoiPool", "RoiAlign"]

_CORNER = 1 << 29  # corners further away are moved here, so that C's long holds sums
_MOST = 1024  # samples that a model may ask for


@dataclass(frozen=True)
class RoiAlign(Operator):
    """ins: images [n, h, w, c], regions [k, 4] (x, y, x, y) and the image of each [k] (s32).

    Output [k, *size, c]: the mean, or with `largest` the maximum, of the samples in each bin of a
    region: `samples` along each axis, or about one for each pixel if 0. A sample is interpolated
    between four pixels, or 0 if it is more than a pixel outside; the largest of its four terms
    counts for the maximum, as in ONNX Runtime. With `half`, the center of pixel 0 is at 0.5, else
    at 0, and regions have at least one pixel.
    """

    kind: ClassVar[str] = "roi_align"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "window"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    size: tuple[int, int] = (1, 1)
    samples: int = 0
    scale: float = 1.0
    half_pixel: bool = True
    largest: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, regions, images = (operand(ins, i, n) for i, n in enumerate(("x", "regions", "images")))
        need_dtype(images, (DType.I32,), "images")
        need_shape(images, (images.elements,), "images")
        need_shape(regions, (images.elements, 4), "regions")
        if not 0 <= self.samples <= _MOST:
            raise ShapeError(f"expected 0 to {_MOST} samples, found {self.samples}")
        return _pooled(x, regions, self.size)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        pixels, regions, images = (required(x, i) for i in range(3))
        y = np.zeros(outs[0].shape, np.float32)
        offset = np.float32(0.5 if self.half_pixel else 0)
        corners = regions * np.float32(self.scale) - offset
        for region, at in enumerate(np.clip(images, 0, len(pixels) - 1)):
            left, top, right, bottom = corners[region]
            rows = self._axis(top, bottom, self.size[0], pixels.shape[1])
            columns = self._axis(left, right, self.size[1], pixels.shape[2])
            for bin_ in np.ndindex(self.size):
                y[region][bin_] = self._pool(pixels[at], rows[bin_[0]], columns[bin_[1]])
        return [y]

    def _axis(self, start: np.float32, end: np.float32, bins: int, length: int) -> list[_Samples]:
        """The samples of each bin along one axis, in ONNX Runtime's order of operations."""
        extent = end - start if self.half_pixel else np.maximum(end - start, np.float32(1))
        size = extent / np.float32(bins)
        count = np.ceil(size) if self.samples == 0 else self.samples
        number = int(np.clip(np.nan_to_num(count), 0, ROI_SAMPLES))
        share = (np.arange(number, dtype=np.float32) + np.float32(0.5)) * size
        share = share / np.float32(max(number, 1))
        return [_Samples.of(start + np.float32(i) * size + share, length) for i in range(bins)]

    def _pool(self, image: Array, rows: _Samples, columns: _Samples) -> Array:
        count, inside = rows.count * columns.count, len(rows.low) * len(columns.low)
        join = np.maximum if self.largest else np.add
        start = -np.inf if self.largest and inside == count > 0 else 0
        y: Array = np.full(image.shape[2], start, np.float32 if self.largest else np.float64)
        for i, first in enumerate(zip(rows.low, rows.high, strict=True)):
            for row, high in zip(first, rows.weight, strict=True):
                for column, wide in zip((columns.low, columns.high), columns.weight, strict=True):
                    values = image[row, column] * (high[i] * wide)[:, None]
                    y = join(y, join.reduce(values, 0, y.dtype, initial=start))
        return y if self.largest else y / max(count, 1)


@dataclass(frozen=True, eq=False)
class _Samples:
    """Of `count` samples in a bin, those in the image: their two pixels and the weight of each."""

    count: int
    low: Array
    high: Array
    weight: tuple[F32, F32]

    @classmethod
    def of(cls, places: Array, length: int) -> _Samples:
        at = np.maximum(places[(places >= -1) & (places <= length)], np.float32(0))
        at = np.minimum(at, np.float32(length - 1))
        low = at.astype(np.int64)
        second = at - low.astype(np.float32)
        weight = np.float32(1) - second, second
        return cls(len(places), low, np.minimum(low + 1, length - 1), weight)


@dataclass(frozen=True)
class MaxRoiPool(Operator):
    """ins: images [n, h, w, c] and regions [k, 5] (image, x, y, x, y), in pixels after `scale`.

    Output [k, *size, c]: the maximum of each bin of a region, 0 if it is empty. Corners are
    rounded, and the last one belongs to the region.
    """

    kind: ClassVar[str] = "max_roi_pool"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "window"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    size: tuple[int, int] = (1, 1)
    scale: float = 1.0

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, regions = operand(ins, 0, "x"), operand(ins, 1, "regions")
        need_shape(regions, (*regions.shape[:1], 5), "regions")
        return _pooled(x, regions, self.size)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        pixels, regions = required(x, 0), required(x, 1)
        y = np.zeros(outs[0].shape, np.float32)
        moved = np.nan_to_num(regions[:, 1:] * np.float32(self.scale))
        away = np.copysign(np.floor(np.abs(moved.astype(np.float64)) + 0.5), moved)
        corners = np.clip(away, -_CORNER, _CORNER).astype(np.int64)
        images = np.clip(np.nan_to_num(regions[:, 0]), 0, len(pixels) - 1).astype(np.int64)
        for region, at in enumerate(images):
            left, top, right, bottom = (int(v) for v in corners[region])
            rows = _bins(top, bottom, self.size[0], pixels.shape[1])
            columns = _bins(left, right, self.size[1], pixels.shape[2])
            for i, j in np.ndindex(self.size):
                part = pixels[at, rows[i], columns[j]]
                if part.size:
                    y[region, i, j] = part.max((0, 1))
        return [y]


def _bins(start: int, last: int, bins: int, length: int) -> list[slice]:
    """The pixels of each bin along one axis."""
    size = np.float32(max(last - start + 1, 1)) / np.float32(bins)
    edges = np.arange(bins + 1, dtype=np.float32) * size
    first = np.clip(np.floor(edges[:-1]).astype(np.int64) + start, 0, length)
    end = np.clip(np.ceil(edges[1:]).astype(np.int64) + start, 0, length)
    return [slice(a, max(a, b)) for a, b in zip(first, end, strict=True)]


def _pooled(x: Tensor, regions: Tensor, size: tuple[int, int]) -> list[tuple[Shape, DType]]:
    """The shape of bins of f32 images."""
    need_rank(x, 4, "images")
    need_dtype(x, (DType.F32,), "images")
    need_dtype(regions, (DType.F32,), "regions")
    need_positive((*x.shape, regions.shape[0], *size), "images, regions and size")
    shape = (regions.shape[0], *size, x.shape[3])
    need_elements(shape)
    return [(shape, DType.F32)]

"""Pooling over NHWC images; padding is never counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.device.runtime.kernel_facts import POOL_RUN
from edgekit.host.compiler.ir.checks import (
    IMAGES,
    need_dtype,
    need_pairs,
    need_positive,
    need_rank,
    need_scale,
)
from edgekit.host.compiler.ir.checks import operand as input_of
from edgekit.host.compiler.ir.nearest import reals, rounds_once, shift_of
from edgekit.host.compiler.ir.quantization import (
    activation_range,
    quantized_range,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.sums import clamp_float, required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Padding,
    Shape,
    ShapeError,
    Tensor,
)
from edgekit.host.compiler.ir.windows import image_size, pad_image, tap, window_positions

__all__ = ["AveragePool2D", "MaxPool2D"]

_WINDOW_LIMIT = 1 << 16  # the reference makes a pass over the image per window element


@dataclass(frozen=True)
class _Pool2D(Operator):
    elementwise = False
    cost_kind = "window"
    half = Half.YES
    window: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    activation: Activation = Activation.NONE

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, window, padding = input_of(ins, 0, "image"), self.window, self.padding
        need_rank(x, 4, "image")
        need_dtype(x, (*IMAGES, DType.F16), "image")
        need_scale(x, "image")
        need_positive(x.shape, "image")
        need_pairs("window and stride", window, self.stride)
        if window[0] * window[1] > _WINDOW_LIMIT:
            raise ShapeError(f"expected a window of at most {_WINDOW_LIMIT} pixels, found {window}")
        rows, columns = max(padding.top, padding.bottom), max(padding.left, padding.right)
        if rows >= window[0] or columns >= window[1]:
            raise ShapeError(
                f"expected padding smaller than the window {list(window)}, found {padding}"
            )
        out = window_positions(image_size(x.shape), window, self.stride, padding)
        return [((x.shape[0], *out, x.shape[3]), x.dtype)]

    def keeps_factors(self, ins: Sequence[Tensor | None]) -> bool:
        return True

    def terms(self, ins: Sequence[Tensor | None]) -> int:
        return math.prod(self.window)


@dataclass(frozen=True)
class AveragePool2D(_Pool2D):
    """Average over the window's pixels inside the image. 8-bit images keep their scale, except by
    ONNX's rules."""

    kind: ClassVar[str] = "average_pool2d"
    arithmetic = Arithmetic.SUMMED
    on_quantized = OnQuantized.KEEPS

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, out = required(x, 0), outs[0]
        if rounds_once(out):
            return [self._nearest(values, input_of(ins, 0, "image"), out)]
        wide: type[np.generic] = np.int64
        if out.dtype.is_float:  # small windows are summed in TFLite's order: see ir/sums.py
            wide = np.float32 if math.prod(self.window) <= POOL_RUN else np.float64
        total = self._window_sums(values.astype(wide), out.shape)
        count = self._window_sums(
            np.ones((1, *values.shape[1:3], 1), wide), (1, *out.shape[1:3], 1)
        )
        if out.dtype.is_float:
            return [clamp_float((total / count).astype(out.dtype.numpy), self.activation)]
        # C division truncates; adding half away from zero rounds halves away from zero.
        mean = np.sign(total) * ((np.abs(total) + count // 2) // count)
        low, high = activation_range(self.activation, out)
        return [np.clip(mean, low, high).astype(values.dtype)]

    def _nearest(self, values: Array, source: Tensor, out: Tensor) -> Array:
        """Averages of real values in ONNX Runtime's order, with the zero point before rounding."""
        total = self._window_sums(reals(values, source), out.shape)
        ones = np.ones((1, *values.shape[1:3], 1), np.float32)
        mean = total / self._window_sums(ones, (1, *out.shape[1:3], 1))
        shift, (low, high) = shift_of(out), activation_range(self.activation, out)
        y = mean / np.float32(scale_of(out)) + np.float32(zero_point_of(out) + shift)
        return (np.rint(np.clip(y, low + shift, high + shift)) - shift).astype(values.dtype)

    def _window_sums(self, image: Array, shape: Shape) -> Array:
        padded = pad_image(image, self.padding)
        total = np.zeros(shape, image.dtype)
        for offset in np.ndindex(*self.window):
            total += tap(padded, offset, image_size(shape), self.stride)
        return total


@dataclass(frozen=True)
class MaxPool2D(_Pool2D):
    kind: ClassVar[str] = "max_pool2d"
    arithmetic = Arithmetic.EXACT
    on_quantized = OnQuantized.MOVES

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, out = required(x, 0), outs[0]
        smallest = -np.inf if out.dtype.is_float else quantized_range(out.dtype)[0]
        padded = pad_image(values, self.padding, smallest)
        y = np.full(out.shape, smallest, values.dtype)
        for offset in np.ndindex(*self.window):
            np.maximum(y, tap(padded, offset, image_size(out.shape), self.stride), out=y)
        if out.dtype.is_float:
            return [clamp_float(y, self.activation)]
        low, high = activation_range(self.activation, out)
        return [np.clip(y, low, high).astype(values.dtype)]

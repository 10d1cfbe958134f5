"""A sliding window over an image, and the tiling of its GEMM."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D
from edgekit.host.compiler.ir.types import Array, Padding, Tensor
from edgekit.host.compiler.lowering.context import padded
from edgekit.host.compiler.lowering.plan import Field
from edgekit.kb.targets.isa import Tile


@dataclass(frozen=True)
class Window:
    """Mirrors ek_window in device/kernels/kernel.h."""

    x: tuple[int, int, int, int]
    y: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = Padding()

    @property
    def pixels(self) -> int:
        return self.y[0] * self.y[1] * self.y[2]

    @property
    def k(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.x[3]

    @property
    def border(self) -> int:
        """Maximum elements of x copied by border_rows (conv/rows.h) per pixel of a tile."""
        return self.kernel[0] * max(self.kernel[1], self.stride[1]) * self.x[3]

    @property
    def crossing(self) -> float:
        """The share of windows that cross the border of the image."""
        inside = 1
        for axis, before in enumerate((self.padding.top, self.padding.left)):
            size, outputs, stride = self.x[axis + 1], self.y[axis + 1], self.stride[axis]
            reach = (self.kernel[axis] - 1) * self.dilation[axis]
            first = math.ceil(before / stride)
            last = (size + before - reach - 1) // stride
            inside *= max(min(last, outputs - 1) - first + 1, 0)
        return 1 - inside / (self.y[1] * self.y[2])

    @property
    def whole(self) -> Window:
        """The same window over images that already include their padding."""
        (n, h, w, c), pad = self.x, self.padding
        size = (n, h + pad.top + pad.bottom, w + pad.left + pad.right, c)
        return replace(self, x=size, padding=Padding())

    @property
    def pointwise(self) -> bool:
        """True if the rows of x are the rows of the GEMM."""
        return (
            self.kernel == (1, 1)
            and self.stride == (1, 1)
            and not self.padding.any
            and self.x[:3] == self.y[:3]
        )

    @property
    def fields(self) -> Field:
        n, h, w, c = self.x
        kh, kw = self.kernel
        return (
            n, h, w, c, *self.y[1:], kh, kw, *self.stride, *self.dilation,
            self.padding.top, self.padding.left,
        )  # fmt: skip


def window_of(op: Conv2D | DepthwiseConv2D, x: Tensor, weights: Tensor, y: Tensor) -> Window:
    xs, ys = _unpack_nhwc(x.shape), _unpack_nhwc(y.shape)
    kernel = (weights.shape[1], weights.shape[2])
    return Window(xs, ys, kernel, op.stride, op.dilation, op.padding)


def _unpack_nhwc(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    n, h, w, c = shape
    return n, h, w, c


def count_tasks(window: Window, tile: Tile, vl: int) -> tuple[int, int]:
    """Returns (tasks of a kernel, panels of output channels)."""
    panels = math.ceil(window.y[3] / (tile.nv * vl))
    return math.ceil(window.pixels / tile.mr) * panels, panels


def bias_vector(bias: Tensor | None, width: int, dtype: np.dtype[np.generic]) -> Array:
    """The bias padded to complete vectors; zeros if there is none."""
    if bias is None:
        return np.zeros(width, dtype)
    assert bias.data is not None
    return padded(bias.data, width, dtype)

"""Sliding windows over NHWC images: output sizes, padding, patch extraction."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir.types import Array, Padding, Shape, ShapeError

_PADDING_LIMIT = 1 << 16

Pair = tuple[int, int]


def image_size(shape: Shape) -> Pair:
    """Return height and width of an NHWC image or of OHWI weights."""
    return shape[1], shape[2]


def span(window: Pair, dilation: Pair) -> Pair:
    """Rows and columns covered by a dilated window."""
    return (window[0] - 1) * dilation[0] + 1, (window[1] - 1) * dilation[1] + 1


def window_positions(size: Pair, window: Pair, stride: Pair, padding: Padding) -> Pair:
    """Output height and width; `window` includes dilation. Raises `ShapeError` if < 1."""
    pads = (padding.top, padding.bottom, padding.left, padding.right)
    if min(pads) < 0 or max(pads) > _PADDING_LIMIT:
        raise ShapeError(f"expected padding from 0 to {_PADDING_LIMIT}, found {list(pads)}")
    rows = (size[0] + padding.top + padding.bottom - window[0]) // stride[0] + 1
    columns = (size[1] + padding.left + padding.right - window[1]) // stride[1] + 1
    if rows < 1 or columns < 1:
        raise ShapeError(
            f"expected an image that holds one window of {window[0]}x{window[1]}, "
            f"found {size[0]}x{size[1]}"
        )
    return rows, columns


def same_padding(size: int, window: int, stride: int) -> Pair:
    """TFLite's SAME: the output has ⌈size/stride⌉ pixels; odd padding goes to the end."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def pad_image(x: Array, padding: Padding, value: float = 0) -> Array:
    if not padding.any:
        return x
    widths = ((0, 0), (padding.top, padding.bottom), (padding.left, padding.right), (0, 0))
    return np.pad(x, widths, constant_values=value)


def tap(x: Array, offset: Pair, out: Pair, stride: Pair) -> Array:
    """The pixels of a padded image under one element of the window: [n,oh,ow,c], a view."""
    top, left = offset
    rows = slice(top, top + (out[0] - 1) * stride[0] + 1, stride[0])
    columns = slice(left, left + (out[1] - 1) * stride[1] + 1, stride[1])
    return x[:, rows, columns, :]


def patches(x: Array, window: Pair, stride: Pair, dilation: Pair, out: Pair) -> Array:
    """Extract rows [n·oh·ow, kh·kw·c] from a padded image [n,h,w,c] for a matrix product."""
    n, _, _, c = x.shape
    if window == (1, 1):
        return tap(x, (0, 0), out, stride).reshape(-1, c)
    rows = np.empty((n, *out, *window, c), x.dtype)
    for i in range(window[0]):
        for j in range(window[1]):
            rows[:, :, :, i, j] = tap(x, (i * dilation[0], j * dilation[1]), out, stride)
    return rows.reshape(-1, window[0] * window[1] * c)

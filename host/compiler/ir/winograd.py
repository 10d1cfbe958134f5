"""Winograd's transform F(4x4, 3x3) of 3x3 convolutions: weights, and the rounding of f16 kernels.

4x4 output pixels take 36 products per pair of channels, a direct convolution takes 144. The
interpolation points are 0, ±sqrt(1/2), ±sqrt(2) and infinity: their rounding errors are smaller
than those of integer points.

In f16, transformed images are scaled down, so that they are finite for all finite images, and
weights at ±sqrt(2) are scaled up, so that sums at all points are about equally large. No value in
between exceeds the largest value of the window times the sum of absolute weights: where that is at
most 65504, nothing overflows, as in a direct convolution. Runs of HALF_CHANNELS products are summed
first, and then these sums, which halves the error of long sums.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.kernel_facts import WINOGRAD_HALF_CHANNELS
from edgekit.host.compiler.ir.sums import half_rows
from edgekit.host.compiler.ir.types import Array

SIDE = 6  # of a tile of the image
OUT = 4  # of a tile of the result
_NEAR, _FAR = math.sqrt(0.5), math.sqrt(2.0)
_POINTS = ((_NEAR, -1.5), (-_NEAR, -1.5), (_FAR, 6.0), (-_FAR, 6.0))
# Weights at the points 0, +-near, +-far and infinity, with the factors omitted by the input
# transform.
_WEIGHTS = np.array(
    [(1, 0, 0), *((1 / over, p / over, p * p / over) for p, over in _POINTS), (0, 0, 1)],
    np.float64,
)
# The same at the points 0, +-1, +-2 and infinity, times 24; infinity times 3, because the kernel
# multiplies its sums by 8.
_WHOLE = np.array([(6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 3)])
_WHOLE_GAIN = 12 * 12  # the largest ratio of a transformed weight and those of its channels
_LARGEST = 128  # absolute value of a signed byte
_SUM_BITS = 25  # of a result besides its sign: 24 * 24 times it, modulo 2^32, determines so many
_HALF_SCALE = 1 / 32  # of transformed images
_HALF_FAR = _FAR**-3  # of sums at +-far
_ELEMENTS = 1 << 23  # maximum number of transformed elements in memory at a time

F32 = NDArray[np.float32]


def transform_weights(weights: Array, half: bool) -> NDArray[np.float64]:
    """[oc, 3, 3, c] → [6, 6, c, oc]."""
    matrix = _WEIGHTS.copy()
    if half:
        matrix[3:5] /= _HALF_FAR
    taps = np.ascontiguousarray(weights.transpose(1, 2, 3, 0), np.float64)
    lines = matrix @ taps.reshape(3, -1)
    # Not einsum, which takes 20 times as long.
    return (matrix @ lines.reshape(SIDE, 3, -1)).reshape(SIDE, SIDE, *taps.shape[2:])


def is_exact(weights: Array) -> bool:
    """Whether the sums of a product of bytes with `weights` [oc, k], less their zero point, and the
    transformed weights fit the kernel's integers."""
    sizes = np.abs(weights.astype(np.int64))
    fits = sizes.max(initial=0) * _WHOLE_GAIN <= np.iinfo(np.int16).max
    return bool(fits and _LARGEST * sizes.sum(axis=1).max(initial=0) < 1 << _SUM_BITS)


def whole_weights(weights: Array) -> NDArray[np.int64]:
    """The same for bytes, less their zero point: integers, 24 * 24 times the weights."""
    lines = np.tensordot(_WHOLE, weights.astype(np.int64), (1, 1))  # [6, oc, 3, c]
    points: NDArray[np.int64] = np.tensordot(_WHOLE, lines, (1, 2)).transpose(1, 0, 3, 2)
    return points


def half_convolution(padded: Array, weights: Array) -> F32:
    """Sums of a 3x3 convolution with stride 1 over an image with padding, rounded like those of the
    f16 kernel."""
    n, height, width, _ = padded.shape
    oh, ow, oc = height - 2, width - 2, len(weights)
    down, across = -(-oh // OUT), -(-ow // OUT)
    more = ((0, 0), (0, down * OUT - oh), (0, across * OUT - ow), (0, 0))
    image = np.pad(padded.astype(np.float32), more)
    matrices = _round(transform_weights(weights, half=True)).reshape(SIDE, SIDE, -1, oc)
    y = np.empty((n, down * OUT, across * OUT, oc), np.float32)
    most = max(_ELEMENTS // (n * across * SIDE * SIDE * max(matrices.shape[2:])), 1)
    for top in range(0, down, most):
        rows = min(most, down - top)
        band = image[:, top * OUT : (top + rows) * OUT + 2]
        tiles = np.lib.stride_tricks.sliding_window_view(band, (SIDE, SIDE), (1, 2))
        summed = _products(_transform_in(tiles[:, ::OUT, ::OUT]), matrices)
        out = _transform_out(summed).transpose(2, 3, 0, 4, 1, 5)  # [n, down, 4, across, 4, oc]
        y[:, top * OUT : (top + rows) * OUT] = out.reshape(n, rows * OUT, across * OUT, oc)
    return y[:, :oh, :ow]


def _round(x: Array) -> F32:
    return x.astype(np.float16).astype(np.float32)


def _fma(a: F32, b: float, c: F32) -> F32:
    return _round(a * np.float32(np.float16(b)) + c)


def _transform_in(tiles: F32) -> F32:
    """[n, down, across, c, 6, 6] → [6, 6, n, down, across, c]."""
    x = tiles.transpose(4, 5, 0, 1, 2, 3)
    lines = _lines_in(x.swapaxes(0, 1), _HALF_SCALE).swapaxes(0, 1)
    return _lines_in(lines, 1.0)


def _lines_in(d: F32, scale: float) -> F32:
    """Transforms the first axis, as transform_in of conv/f32_winograd.c."""
    d1, d3, d4 = (_round(d[i] * np.float32(scale)) for i in (1, 3, 4))
    even_near, odd_near = _fma(d[2], -2 * scale, d4), _fma(d[1], -2 * scale, d3)
    even_far, odd_far = _fma(d[2], -0.5 * scale, d4), _fma(d[1], -0.5 * scale, d3)
    return np.stack(
        (
            _fma(d[2], -2.5 * scale, _fma(d[0], scale, d4)),
            _fma(odd_near, _NEAR, even_near),
            _fma(odd_near, -_NEAR, even_near),
            _fma(odd_far, _FAR, even_far),
            _fma(odd_far, -_FAR, even_far),
            _fma(d[3], -2.5 * scale, _fma(d[5], scale, d1)),
        )
    )


def _products(x: F32, weights: F32) -> F32:
    """[6, 6, ..., c] by [6, 6, c, oc]."""
    c, oc = weights.shape[2:]
    points = zip(x.reshape(SIDE * SIDE, -1, c), weights.reshape(SIDE * SIDE, c, oc), strict=True)
    total = [half_rows(rows, matrix, WINOGRAD_HALF_CHANNELS) for rows, matrix in points]
    return np.stack(total).reshape(*x.shape[:-1], oc)


def _transform_out(sums: F32) -> F32:
    """[6, 6, ...] → [4, 4, ...]."""
    lines = _lines_out(sums.swapaxes(0, 1)).swapaxes(0, 1)
    return _lines_out(lines) / np.float32(_HALF_SCALE)


def _lines_out(m: F32) -> F32:
    """Transforms the first axis, as transform_out of conv/f32_winograd.c."""
    sum_near, less_near = _round(m[1] + m[2]), _round(m[1] - m[2])
    sum_far, less_far = _round(m[3] + m[4]), _round(m[3] - m[4])
    last = _fma(less_far, _FAR * 2 * _HALF_FAR, m[5])
    return np.stack(
        (
            _fma(sum_far, _HALF_FAR, _round(m[0] + sum_near)),
            _fma(less_near, _NEAR, _round(less_far * np.float32(_FAR * _HALF_FAR))),
            _fma(sum_near, 0.5, _round(sum_far * np.float32(np.float16(2 * _HALF_FAR)))),
            _fma(less_near, _NEAR / 2, last),
        )
    )

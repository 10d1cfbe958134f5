"""Convolutions of integers with s32 sums, as f32 convolutions over few enough terms to be exact."""

from __future__ import annotations

from functools import partial

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import (
    Sliding,
    as_image,
    grouped,
    groups_of,
    need_groups,
    sliding_over,
)
from edgekit.host.compiler.frontends.onnx.volume import summed_over_depth
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

_EXACT = 1 << 24  # f32 is exact for integers up to this
_LARGEST = 255  # of the magnitude of an 8-bit value without its zero point


def integer_sums(call: OnnxCall, x: Tensor, w: Array) -> Tensor:
    """s32 sums of a channels-first convolution of 8-bit integers held in f32."""
    need_rank(x, 3, 4, 5)
    if w.ndim != len(x.shape):
        raise ShapeError(f"expected weights of rank {len(x.shape)}, found {list(w.shape)}")
    x, s = sliding_over(call, x, w.shape[2:])
    if w.ndim == 5:
        taps = w.transpose(2, 0, 1, 3, 4)
        return summed_over_depth(call, x, s, partial(_exact_conv, call, taps))
    kernel = w if w.ndim == 4 else w[:, :, None, :]
    y = call.nchw(_exact_conv(call, kernel[None], call.nhwc(as_image(call, x)), 0, s))
    return y if len(x.shape) == 4 else call.reshape(y, (*y.shape[:2], y.shape[3]))


def _exact_conv(call: OnnxCall, weights: Array, image: Tensor, tap: int, s: Sliding) -> Tensor:
    w, groups = weights[tap], groups_of(call)
    depth = w.shape[1]
    need_groups(image, len(w), depth, groups)
    total: Tensor | None = None
    for begin, end in _exact_parts(w):
        part = image
        if end - begin < depth:
            each = call.reshape(image, (*image.shape[:3], groups, depth))
            each = call.part(each, 4, begin, end - begin)
            part = call.reshape(each, (*image.shape[:3], groups * (end - begin)))
        sums = grouped(call, part, w[:, begin:end], None, groups, s)
        sums = call.convert(sums, DType.I32)
        total = sums if total is None else call.emit(ops.Add(), total, sums)
    assert total is not None
    return total


def _exact_parts(w: Array) -> list[tuple[int, int]]:
    """The fewest ranges of a group's channels, in order, whose sums stay exact."""
    largest = np.abs(w).sum(axis=(2, 3), dtype=np.float64) * _LARGEST
    if largest.max(initial=0) > _EXACT:
        raise ShapeError(f"expected fewer taps per channel, found {w.shape[2] * w.shape[3]}")
    starts, total = [0], np.zeros(len(w))
    for channel, one in enumerate(largest.T):
        total = total + one
        if total.max() > _EXACT:
            starts.append(channel)
            total = one
    return list(zip(starts, [*starts[1:], w.shape[1]], strict=True))

"""Import of transposed convolutions (ONNX and Caffe).

Windows that do not overlap become one product. With stride s, pixel q·s + r of the full result sums
x[q − m] · w[r + s·m] over m: for each phase r a convolution with every s-th tap, so zeros between
pixels are never multiplied. All other cases insert zeros between pixels and convolve.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import Emitter, need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import (
    Sliding,
    as_image,
    crop,
    grouped,
    groups_of,
    pair,
    weights_of,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, MisfitError, Padding, Quant, ShapeError, Tensor
from edgekit.host.compiler.ir.windows import Pair

_MOST_STEPS = 64  # phases of a stride
_MOST_ALONE = 16  # phases in separate convolutions, if they could share one
_FEW_CHANNELS = 8  # output channels below which a shared convolution wins despite more taps


def conv_transpose(call: OnnxCall) -> Tensor:
    x = call.x(0)
    need_rank(x, 3, 4)
    w = weights_of(call, 1, "weights")  # [ic, oc/groups, kh, kw]
    groups, rank = groups_of(call), len(x.shape) - 2
    if w.shape[0] != x.shape[1] or w.shape[0] % groups:
        raise MisfitError(f"expected weights of {x.shape[1]} channels, found {list(w.shape)}")
    s = cut_of(call, x.shape[2:], w.shape[4 - rank :])
    bias = None if call.maybe(2) is None else call.value(2, "bias").reshape(-1)
    image = call.nhwc(as_image(call, x))
    y = call.nchw(transposed(call, image, w, bias, groups, s, call.quant(1)))
    return y if rank == 2 else call.reshape(y, (*y.shape[:2], y.shape[3]))


def transposed(
    call: Emitter,
    x: Tensor,
    w: Array,
    bias: Array | None,
    groups: int,
    s: Sliding,
    quant: Quant | None = None,
) -> Tensor:
    """A transposed convolution of an NHWC image with weights [ic, oc/groups, kh, kw]. `s` holds the
    amounts cropped from the full result; `quant`: the weights' quantization, if known.
    Non-overlapping windows become one product, others convolutions."""
    if quant is not None and quant.per_channel:
        scale, zero = np.tile(quant.scale, groups), np.tile(quant.zero_point, groups)
        quant = Quant(scale, zero) if quant.axis == 1 else None
    kernel, stride = (w.shape[2], w.shape[3]), pair(s.stride, 1)
    apart = kernel == stride and set(s.dilation) == {1}
    if apart and groups == 1 and not any((*s.before, *s.after)):
        size = (x.shape[1] * stride[0], x.shape[2] * stride[1])
        data = call.quantized(w.transpose(1, 2, 3, 0), quant)
        b = None if bias is None else call.constant(bias)
        return call.emit(ops.TransposeConv2D(stride, Padding(), size), x, data, b)
    axes = _phase_axes(x, kernel, s)
    if axes is None:
        return _conv_zero_inserted(call, x, w, bias, groups, s, quant)
    return _in_steps(call, x, w, bias, groups, axes, quant)


def cut_of(call: OnnxCall, size: Sequence[int], window: tuple[int, ...]) -> Sliding:
    """`before` and `after` are cropped from the full result; `after` may be negative."""
    rank = len(size)
    stride = call.list("strides", (1,) * rank)
    dilation = call.list("dilations", (1,) * rank)
    extra = call.list("output_padding", (0,) * rank)
    pads = call.list("pads", (0,) * (2 * rank))
    if not (len(window) == len(stride) == len(dilation) == len(extra) == rank) or (
        len(pads) != 2 * rank or min((*window, *stride, *dilation)) < 1
    ):
        raise ShapeError(
            f"expected a window, strides, dilations and pads for {rank} axes, found "
            f"{list(window[:9])}, {list(stride[:9])}, {list(dilation[:9])} and {list(pads[:9])}"
        )
    full = [
        (n - 1) * st + (k - 1) * d + 1
        for n, st, k, d in zip(size, stride, window, dilation, strict=True)
    ]
    before, after = list(pads[:rank]), list(pads[rank:])
    kind = call.text("auto_pad", "NOTSET")
    wanted = call.list("output_shape", ())[-rank:]
    if kind in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        # ONNX Runtime does not extend a result that is smaller.
        natural = [f + e for f, e in zip(full, extra, strict=True)]
        wanted = tuple(min(n * st, f) for n, st, f in zip(size, stride, natural, strict=True))
    if wanted:
        for i in range(rank):
            total = full[i] + extra[i] - wanted[i]
            cut = max(total, 0)  # a larger result than the full one is extended at its end
            before[i] = cut // 2 if kind == "SAME_UPPER" else cut - cut // 2
            after[i] = total - before[i]
    after = [a - e for a, e in zip(after, extra, strict=True)]
    return Sliding(window, stride, dilation, tuple(before), tuple(after))


@dataclass(frozen=True)
class _Axis:
    """One axis of a transposed convolution: taps, stride, pixels cropped from the start of the full
    result, and output size."""

    taps: int
    stride: int
    cut: int
    size: int


@dataclass(frozen=True)
class _Step:
    """One phase of an axis: its first tap, its first q, and its number of pixels."""

    tap: int
    first: int
    count: int


def _phase_axes(x: Tensor, kernel: Pair, s: Sliding) -> list[_Axis] | None:
    """The two axes; None without stride, with dilation, or if phases would be mostly padding."""
    stride, low, high = pair(s.stride, 1), pair(s.before, 0), pair(s.after, 0)
    padded = math.prod(-(-k // st) * st for k, st in zip(kernel, stride, strict=True))
    if not 1 < math.prod(stride) <= _MOST_STEPS or max(s.dilation) > 1:
        return None
    if padded > 4 * math.prod(kernel) + 16:
        return None
    axes = []
    for n, k, st, before, after in zip(x.shape[1:3], kernel, stride, low, high, strict=True):
        axes.append(_Axis(k, st, before, (n - 1) * st + k - before - after))
    return axes if min(axis.size for axis in axes) > 0 else None


def _in_steps(
    call: Emitter,
    x: Tensor,
    w: Array,
    bias: Array | None,
    groups: int,
    axes: Sequence[_Axis],
    quant: Quant | None,
) -> Tensor:
    """Computes all phases as channels, interleaves them as pixels, and crops."""
    (sh, sw), channels = (axis.stride for axis in axes), groups * w.shape[1]
    if groups == 1 and (channels < _FEW_CHANNELS or sh * sw > _MOST_ALONE):
        made = _conv_all_phases(call, x, w, bias, axes, quant)
        cut = [axis.cut % axis.stride for axis in axes]
    else:
        made = _conv_per_phase(call, x, w, bias, groups, axes, quant)
        cut = [0, 0]
    n, height, width, _ = made.shape
    split = call.reshape(made, (n, height, width, sh, sw, channels))
    pixels = call.transpose(split, (0, 1, 3, 2, 4, 5))
    image = call.reshape(pixels, (n, height * sh, width * sw, channels))
    rest = [
        size - before - axis.size
        for size, before, axis in zip(image.shape[1:3], cut, axes, strict=True)
    ]
    return crop(call, image, (0, *cut, 0), (0, *rest, 0))


def _conv_per_phase(
    call: Emitter,
    x: Tensor,
    w: Array,
    bias: Array | None,
    groups: int,
    axes: Sequence[_Axis],
    quant: Quant | None,
) -> Tensor:
    """One convolution per phase, with only its taps and only the needed pixels."""
    parts = []
    wide = _pad_kernel(w, [max(a.taps, a.stride) for a in axes])
    for row, column in itertools.product(*(range(a.stride) for a in axes)):
        steps = [
            _Step((i + a.cut) % a.stride, (i + a.cut) // a.stride, -(-a.size // a.stride))
            for i, a in zip((row, column), axes, strict=True)
        ]
        own = wide[:, :, steps[0].tap :: axes[0].stride, steps[1].tap :: axes[1].stride]
        parts.append(_conv_phase(call, x, _flip_kernel(own, groups), bias, groups, steps, quant))
    return call.emit(ops.Concat(3), *parts)


def _conv_all_phases(
    call: Emitter,
    x: Tensor,
    w: Array,
    bias: Array | None,
    axes: Sequence[_Axis],
    quant: Quant | None,
) -> Tensor:
    """One convolution whose output channels are those of all phases, on shared windows."""
    (sh, sw) = (axis.stride for axis in axes)
    wide = _pad_kernel(w, [-(-a.taps // a.stride) * a.stride for a in axes])
    windows = [
        _flip_kernel(wide[:, :, row::sh, column::sw], 1)
        for row, column in itertools.product(range(sh), range(sw))
    ]
    term = None if bias is None else np.tile(bias, sh * sw)
    if quant is not None and quant.per_channel:
        quant = Quant(np.tile(quant.scale, sh * sw), np.tile(quant.zero_point, sh * sw))
    steps = []
    for a in axes:
        first = a.cut // a.stride
        steps.append(_Step(0, first, -(-(a.cut + a.size) // a.stride) - first))
    return _conv_phase(call, x, np.concatenate(windows), term, 1, steps, quant)


def _pad_kernel(w: Array, taps: Sequence[int]) -> Array:
    more = [(0, size - k) for size, k in zip(taps, w.shape[2:], strict=True)]
    return np.pad(w, [(0, 0), (0, 0), *more])


def _flip_kernel(w: Array, groups: int) -> Array:
    """Weights [ic, oc/groups, kh, kw] of a transposed convolution as [oc, ic/groups, kh, kw] of the
    equivalent convolution."""
    share = w.shape[0] // groups
    flipped = w[:, :, ::-1, ::-1].reshape(groups, share, *w.shape[1:]).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(flipped).reshape(-1, share, *w.shape[2:])


def _conv_phase(
    call: Emitter,
    x: Tensor,
    w: Array,
    bias: Array | None,
    groups: int,
    steps: Sequence[_Step],
    quant: Quant | None,
) -> Tensor:
    """One phase: pads windows that leave the image and crops pixels that no window reads."""
    taps = w.shape[2:]
    before = [k - 1 - step.first for k, step in zip(taps, steps, strict=True)]
    after = [step.first + step.count - n for step, n in zip(steps, x.shape[1:3], strict=True)]
    met = crop(call, x, (0, *(max(-b, 0) for b in before), 0),
               (0, *(max(-a, 0) for a in after), 0))  # fmt: skip
    pads = tuple(max(b, 0) for b in before), tuple(max(a, 0) for a in after)
    return grouped(call, met, w, bias, groups, Sliding(taps, (1, 1), (1, 1), *pads), quant)


def _conv_zero_inserted(
    call: Emitter,
    x: Tensor,
    w: Array,
    bias: Array | None,
    groups: int,
    s: Sliding,
    quant: Quant | None,
) -> Tensor:
    """Inserts zeros between pixels and convolves."""
    n, h, width, c = x.shape
    sh, sw = pair(s.stride, 1)
    spaced = call.reshape(x, (n, h, 1, width, 1, c))
    spaced = call.emit(ops.Pad((0,) * 6, (0, 0, sh - 1, 0, sw - 1, 0)), spaced)
    spaced = call.reshape(spaced, (n, h * sh, width * sw, c))
    kernel, dilation = (w.shape[2], w.shape[3]), pair(s.dilation, 1)
    low, high = pair(s.before, 0), pair(s.after, 0)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    before = [r - b for r, b in zip(reach, low, strict=True)]
    # Each row already ends with stride − 1 zeros after the last pixel.
    after = [r - a - (st - 1) for r, a, st in zip(reach, high, (sh, sw), strict=True)]
    cut = crop(call, spaced, (0, *(max(-b, 0) for b in before), 0),
               (0, *(max(-a, 0) for a in after), 0))  # fmt: skip
    pads = ((0, *(max(b, 0) for b in before), 0), (0, *(max(a, 0) for a in after), 0))
    padded = call.emit(ops.Pad(*pads), cut) if any((*pads[0], *pads[1])) else cut
    plain = Sliding(kernel, (1, 1), dilation, (0, 0), (0, 0))
    return grouped(call, padded, _flip_kernel(w, groups), bias, groups, plain, quant)

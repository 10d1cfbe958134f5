"""Random operators on channels-first images, for `op_graphs`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Operator, Padding
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor

_ACTIVATIONS = list(Activation)
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16, 17, 24, 31, 32, 33, 50, 96)
_CHANNELS = (1, 2, 3, 7, 8, 16, 17, 33, 65)


def _activation(rng: Rng) -> Activation:
    return _ACTIVATIONS[rng.integers(len(_ACTIVATIONS))]


def _normal(rng: Rng, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def conv(rng: Rng) -> Case:
    """Weights of any density, including empty rows; sometimes more than 256 input channels."""
    n, h, w, oc = (pick(rng, v) for v in ((1, 1, 2), _SIZES, _SIZES, _CHANNELS))
    ic = pick(rng, (*_CHANNELS, 300))
    weights = _normal(rng, oc, 1, 1, ic)
    weights[rng.random(weights.shape) >= rng.random()] = 0
    op = ops.ChannelsFirstConv2D(activation=_activation(rng))
    x, bias = tensor((n, ic, h, w)), constant(_normal(rng, oc)) if rng.random() < 0.7 else None
    if rng.random() < 0.4:
        return Case(op, (x, constant(weights), bias, tensor((n, oc, h, w))))
    return Case(op, (x, constant(weights), bias))


class _Window(NamedTuple):
    """Any size, over an image of h x w."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: Padding
    h: int
    w: int


def _window(rng: Rng) -> _Window:
    kernel = [(3, 3), (3, 3), (5, 5), (1, 3), (4, 7)][rng.integers(5)]
    stride = [(1, 1), (2, 2), (1, 2), (3, 3)][rng.integers(4)]
    dilation = (1, 1) if rng.random() < 0.8 else (2, 3)
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pad = [int(rng.integers(0, s)) for s in (span[0], span[0], span[1], span[1])]
    if rng.random() < 0.5:  # "same" padding
        pad = [(s - 1) // 2 for s in (span[0], span[0], span[1], span[1])]
    h = max(pick(rng, _SIZES), span[0] - pad[0] - pad[1], 1)
    w = max(pick(rng, _SIZES), span[1] - pad[2] - pad[3], 1)
    return _Window(kernel, stride, dilation, Padding(*pad), h, w)


def sparse_window(rng: Rng) -> Case:
    """Weights of any density, including empty rows, with every kind of border."""
    kernel, stride, dilation, padding, h, w = _window(rng)
    if rng.random() < 0.1:
        kernel, padding = (1, 1), Padding()
    n, ic, oc = (pick(rng, v) for v in ((1, 1, 2), (1, 2, 3, 8, 17, 33), _CHANNELS))
    weights = _normal(rng, oc, *kernel, ic)
    weights[rng.random(weights.shape) >= rng.random()] = 0
    op = ops.ChannelsFirstConv2D(stride, dilation, padding, _activation(rng))
    x, bias = tensor((n, ic, h, w)), constant(_normal(rng, oc)) if rng.random() < 0.7 else None
    ((shape, _),) = op.infer((x, constant(weights), bias))
    if rng.random() < 0.4:
        return Case(op, (x, constant(weights), bias, tensor(shape)))
    return Case(op, (x, constant(weights), bias))


def depthwise(rng: Rng) -> Case:
    kernel, stride, dilation, padding, h, w = _window(rng)
    n, c = pick(rng, (1, 1, 2)), pick(rng, (1, 2, 3, 8))
    op = ops.ChannelsFirstDepthwiseConv2D(stride, dilation, padding, _activation(rng))
    bias = constant(_normal(rng, c)) if rng.random() < 0.7 else None
    return Case(op, (tensor((n, c, h, w)), constant(_normal(rng, 1, *kernel, c)), bias))


def depthwise_in_place(rng: Rng) -> Case:
    """Stride 1 and output rows as wide as the image's, which are read in place, with any padding
    above and below; narrow images, which are not read in place, are included."""
    kernel, n, c = pick(rng, (3, 3, 5)), pick(rng, (1, 1, 2)), pick(rng, (1, 2, 3, 8))
    side, top, bottom = kernel // 2, *(int(v) for v in rng.integers(0, kernel, 2))
    h, w = max(pick(rng, _SIZES), kernel - top - bottom), pick(rng, _SIZES)
    padding = Padding(top, bottom, side, side)
    op = ops.ChannelsFirstDepthwiseConv2D((1, 1), (1, 1), padding, _activation(rng))
    bias = constant(_normal(rng, c)) if rng.random() < 0.7 else None
    return Case(op, (tensor((n, c, h, w)), constant(_normal(rng, 1, kernel, kernel, c)), bias))


def transpose(rng: Rng) -> Case:
    shape = tuple(pick(rng, (1, 2, 3, 4, 5, 9, 16, 70, 130)) for _ in range(3))
    orders = [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    return Case(ops.Transpose(orders[rng.integers(5)]), (tensor(shape),))


def pruned(rng: Rng) -> Case:
    """Layers of any density and strip format; sometimes more than 256 columns."""
    m, n = pick(rng, (1, 1, 2)), pick(rng, (*_CHANNELS, 200))
    k = pick(rng, (*_CHANNELS, 300, 900))
    weights = _normal(rng, n, k)
    weights[rng.random(weights.shape) >= rng.random()] = 0
    width, window = pick(rng, (1, 4, 64)), pick(rng, (0, 32, 4096))
    flags = [bool(rng.integers(2)) for _ in range(2)]
    how = BlockSettings(width, window, pick(rng, (0, 20)), flags[0], flags[1], pick(rng, (0, 2, 4)))
    op = ops.PrunedFullyConnected(False, _activation(rng), how=how)
    bias = constant(_normal(rng, n)) if rng.random() < 0.7 else None
    return Case(op, (tensor((m, k)), constant(weights), bias))


def pruned_i8(rng: Rng, dtype: DType) -> Case:
    """Quantized layers with weights of any density, including -128, windows with too few columns,
    and empty rows; over rows, pixels or windows with every kind of border."""
    n, k = pick(rng, (*_CHANNELS, 200)), pick(rng, (*_CHANNELS, 63, 64, 130, 300, 900))
    info = np.iinfo(dtype.numpy)
    quantized = rng.integers(-128 if dtype is DType.I8 else -127, 128, (n, k))
    quantized[rng.random(quantized.shape) >= rng.random() ** 2] = 0
    quantized[rng.integers(n)] = 0
    scales = rng.uniform(0.005, 0.02, n if rng.random() < 0.5 else 1).astype(np.float32)
    weights_zero, zero = (
        (128 if dtype is DType.U8 else 0),
        int(rng.integers(info.min, info.max + 1)),
    )
    made = quant(0.05 * k**0.5, int(rng.integers(info.min, info.max + 1)))
    bias = constant(rng.integers(-9999, 9999, n), DType.I32) if rng.random() < 0.7 else None
    shape: tuple[int, ...] = (pick(rng, (1, 1, 2, 13)), k)
    op: Operator = ops.PrunedFullyConnected(activation=_activation(rng))
    kind = rng.random()
    if kind < 0.3:
        kernel, stride, dilation, padding, h, w = _window(rng)
        taps = kernel[0] * kernel[1]
        c = max(k // taps, 1)
        quantized = np.resize(quantized, (n, *kernel, c))
        shape = (pick(rng, (1, 2)), min(h, 20), min(w, 20), c)
        op = ops.PrunedConv2D(stride, dilation, padding, _activation(rng))
    elif kind < 0.6:
        shape = (pick(rng, (1, 2)), pick(rng, (1, 3, 11)), pick(rng, (1, 2, 7)), k)
        op, quantized = ops.PrunedConv2D(activation=_activation(rng)), quantized.reshape(n, 1, 1, k)
    w = constant(quantized + weights_zero, dtype, quant(scales, weights_zero))
    return Case(op, (tensor(shape, dtype, quant(0.05, zero)), w, bias), made)


FAMILIES = {
    "channels_first_conv": (conv, (None,)),
    "sparse_window": (sparse_window, (None,)),
    "channels_first_depthwise": (depthwise, (None,)),
    "channels_first_depthwise_in_place": (depthwise_in_place, (None,)),
    "transpose": (transpose, (None,)),
    "pruned": (pruned, (None,)),
    "pruned_i8": (pruned_i8, (DType.I8, DType.U8)),
}

"""Import of ONNX signal processing; windows and mel weights are constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.common.fourier import spectra, transform
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_SIZE_LIMIT = 1 << 24
_PAIR = 2  # real and imaginary part, on the last axis


def hann_window(call: OnnxCall) -> Tensor:
    return _cosine_window(call, (0.5, -0.5))


def hamming_window(call: OnnxCall) -> Tensor:
    return _cosine_window(call, (25 / 46, -21 / 46))


def blackman_window(call: OnnxCall) -> Tensor:
    return _cosine_window(call, (0.42, -0.5, 0.08))


def _cosine_window(call: OnnxCall, factors: Sequence[float]) -> Tensor:
    """Σ factor · cos(2π k i / n), with k the index of the factor."""
    sizes = call.integers(0, "size")
    if len(sizes) != 1 or not 0 <= sizes[0] <= _SIZE_LIMIT:
        raise ShapeError(f"expected a size from 0 to {_SIZE_LIMIT}, found {list(sizes)}")
    size = sizes[0]
    call.builder.need_room((size,), np.float32)
    period = max(size if call.integer("periodic", 1) else size - 1, 1)
    turns = 2 * np.pi * np.arange(size) / period
    kind = call.dtype(call.integer("output_datatype", 1))
    total = np.zeros(size)
    for k, factor in enumerate(factors):
        total += factor * np.cos(k * turns)
    return call.constant(total.astype(kind.numpy))


def mel_weight_matrix(call: OnnxCall) -> Tensor:
    """[spectrum bins, mel bands]: triangles evenly spaced on the mel scale."""
    sizes = [call.numbers(i, "sizes or edges") for i in range(5)]
    if any(len(values) != 1 for values in sizes):
        raise ShapeError(f"expected one number as each input, found {[len(v) for v in sizes]}")
    bands, length, rate = (int(values[0]) for values in sizes[:3])
    low, high = (values[0] for values in sizes[3:])
    bins = length // 2 + 1
    if not (0 < bands <= 1 << 16 and 0 < bins <= 1 << 20 and rate > 0 and 0 <= low < high):
        raise ShapeError(
            f"expected positive sizes and increasing band edges, found {bands}, {length}, {rate}, "
            f"{low:g} and {high:g}"
        )
    call.builder.need_room((bins, bands), np.float32)
    edges = 2595 * np.log10(1 + np.array([low, high]) / 700)
    mels = edges[0] + np.arange(bands + 2) * ((edges[1] - edges[0]) / (bands + 2))
    at = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / rate).astype(np.int64)
    weights = np.zeros((bins, bands))
    for i in range(bands):
        first, middle, last = (int(min(v, bins)) for v in at[i : i + 3])
        if middle == first:
            weights[middle : middle + 1, i] = 1
        else:
            rise = np.arange(first, middle + 1)
            weights[rise[rise < bins], i] = (rise[rise < bins] - first) / (middle - first)
        if last > middle:
            fall = np.arange(middle, last)
            weights[fall, i] = (last - fall) / (last - middle)
    kind = call.dtype(call.integer("output_datatype", 1))
    return call.constant(weights.astype(kind.numpy))


def dft(call: OnnxCall) -> Tensor:
    """[..., n, ..., 1 or 2] → [..., frequencies, ..., 2]; a one-sided inverse returns 1 part."""
    x = _signal_operand(call, 2)
    rank = len(x.shape)
    usual = -2 if call.opset >= 20 else 1
    axis = call.axis(usual if call.maybe(2) is None else call.single(2, "axis"), rank)
    if axis == rank - 1:
        raise ShapeError(
            "expected an axis before the last (real and imaginary parts), found the last"
        )
    inverse, onesided = bool(call.integer("inverse", 0)), bool(call.integer("onesided", 0))
    size = x.shape[axis]
    points = 2 * (size - 1) if inverse and onesided else size
    if call.maybe(1) is not None:
        points = call.single(1, "length")
    order = [*(i for i in range(rank) if i not in (axis, rank - 1)), axis, rank - 1]
    made = transform(call, call.transpose(x, order), points, onesided, inverse)
    return call.transpose(made, [order.index(i) for i in range(rank)])


def stft(call: OnnxCall) -> Tensor:
    """[b, n, 1 or 2] → [b, frames, frequencies, 2]."""
    x = _signal_operand(call, 3)
    if len(x.shape) == 2:
        x = call.reshape(x, (*x.shape, 1))
    step = call.single(1, "frame step")
    window = call.maybe(2)
    points = x.shape[1] if window is None else window.elements
    if call.maybe(3) is not None:
        points = call.single(3, "frame length")
    if window is not None:
        window = call.reshape(window, (window.elements,))
    op = ops.Fourier(points, points, step, bool(call.integer("onesided", 1)))
    return spectra(call, x, op, window)


def _signal_operand(call: OnnxCall, rank: int) -> Tensor:
    x = call.x(0)
    if len(x.shape) < 2 or x.dtype is not DType.F32:
        raise ShapeError(f"expected a signal of floats, found {x.dtype.value}{list(x.shape)}")
    if len(x.shape) >= rank and x.shape[-1] not in (1, _PAIR):
        raise ShapeError(f"expected 1 or 2 parts on the last axis, found {x.shape[-1]}")
    return x

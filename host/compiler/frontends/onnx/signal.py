"""Import of ONNX operators whose results are signal-processing constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir.types import ShapeError, Tensor

_SIZE_LIMIT = 1 << 24


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
        raise ShapeError("expected one number as each input, found others")
    bands, length, rate = (int(values[0]) for values in sizes[:3])
    low, high = (values[0] for values in sizes[3:])
    bins = length // 2 + 1
    if not (0 < bands <= 1 << 16 and 0 < bins <= 1 << 20 and rate > 0 and 0 <= low < high):
        raise ShapeError("expected positive sizes and increasing band edges, found others")
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

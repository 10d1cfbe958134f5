"""Random but realistic model inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.types import Array, DType, Tensor

_INDICES = 100  # upper limit (exclusive) of random integers
_WAVES = 4  # maximum number of periods of a smooth input along each axis


@dataclass(frozen=True)
class Range:
    """Value range: floats from `low` to `high`, quantized inputs in the fraction `codes` of their
    range, integers below `indices`. `smooth` inputs change slowly along the axes, like pictures
    and sounds."""

    low: float = -1.0
    high: float = 1.0
    codes: float = 1.0
    indices: int = _INDICES
    smooth: bool = False


RANGES = (
    Range(),
    Range(0.0, 1.0, smooth=True),
    Range(-1.0, 1.0, 0.5, indices=10, smooth=True),
    Range(0.0, 1.0, 0.25, indices=2),
    Range(-3.0, 3.0, 0.5),
    Range(0.0, 255.0, smooth=True),
    Range(-0.1, 0.1, 0.1, indices=1),
    Range(-30.0, 30.0),
    Range(indices=10_000, smooth=True),  # for sound lengths: features of a single frame cancel out
)  # candidates for golden inputs, most common first


def random_input(tensor: Tensor, rng: np.random.Generator, values: Range = RANGES[0]) -> Array:
    """Return random values; by default all values of a quantized input, [-1, 1] for floats, and
    small integers, which are mostly indices."""
    kind = tensor.dtype.numpy
    if tensor.dtype.is_float:
        if values.smooth:
            return (values.low + (values.high - values.low) * _smooth(tensor, rng)).astype(kind)
        return rng.uniform(values.low, values.high, tensor.shape).astype(kind)
    if not (tensor.dtype.is_quantized or tensor.is_quantized):
        most = 2 if tensor.dtype is DType.BOOL else values.indices
        return rng.integers(0, most, tensor.shape).astype(kind)
    info = np.iinfo(kind)
    if values.smooth:
        middle = (info.min + info.max) / 2
        span = (info.max - info.min) * values.codes
        return np.rint(middle + (_smooth(tensor, rng) - 0.5) * span).astype(kind)
    cut = int((info.max - info.min) * (1 - values.codes) / 2)
    return rng.integers(info.min + cut, info.max + 1 - cut, tensor.shape, dtype=kind)


def _smooth(tensor: Tensor, rng: np.random.Generator) -> Array:
    """Sum of a wave along each axis and a little noise, scaled to [0, 1]."""
    total = rng.uniform(-0.2, 0.2, tensor.shape)
    for axis, size in enumerate(tensor.shape):
        turns, phase = rng.uniform(0.5, _WAVES), rng.uniform(0, 2 * np.pi)
        wave = np.sin(phase + turns * 2 * np.pi * np.arange(size) / max(size, 1))
        total += wave.reshape([-1 if i == axis else 1 for i in range(len(tensor.shape))])
    low, high = total.min(initial=0.0), total.max(initial=0.0)
    return np.asarray((total - low) / max(high - low, 1e-9))

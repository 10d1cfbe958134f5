"""Random operators of microphone front ends, and random bits, for `op_graphs`.

Constants cover all magnitudes, which random inputs do not.
"""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Tensor
from tests.support.op_cases import Case, Rng, constant, pick, tensor


def _sizes(rng: Rng, dtype: DType, count: int) -> Array:
    """Integers of every bit width, half of them negative if the dtype is signed."""
    ends = np.iinfo(dtype.numpy)
    bits = rng.integers(0, 8 * dtype.bytes + 1, count)
    values = [int(rng.integers(0, 1 << 62)) % (1 << int(b)) for b in bits]
    signs = rng.choice([-1, 1] if ends.min < 0 else [1], count)
    made = [min(max(v * int(s), ends.min), ends.max) for v, s in zip(values, signs, strict=True)]
    return np.array([ends.min, ends.max, 0, 1, *made], dtype.numpy)[:count]


def _of(rng: Rng, dtype: DType, *shape: int) -> Tensor:
    if rng.random() < 0.3:
        return tensor(shape, dtype)
    return constant(_sizes(rng, dtype, int(np.prod(shape))).reshape(shape), dtype)


def fourier(rng: Rng, dtype: DType) -> Case:
    points, rows = pick(rng, (4, 8, 16, 32, 64, 128, 512)), pick(rng, (1, 3))
    if rng.random() < 0.4:
        return Case(ops.FixedFourier(points, True), (_of(rng, dtype, rows, points + 2),))
    length = pick(rng, (points, points - 1, 1))
    return Case(ops.FixedFourier(points), (_of(rng, dtype, rows, length),))


def float_fourier(rng: Rng) -> Case:
    """Every radix, frames that overlap, and all forms of signals and spectra."""
    points = pick(rng, (1, 2, 3, 4, 5, 6, 7, 8, 11, 15, 16, 20, 25, 27, 49, 64, 77, 80, 200, 256))
    rows, planar = pick(rng, (1, 3)), bool(rng.random() < 0.3)
    onesided, inverse = bool(rng.random() < 0.5), bool(rng.random() < 0.4)
    length = points // 2 + 1 if onesided and inverse else pick(rng, (points, max(points // 3, 1)))
    step, extra = pick(rng, (1, 3, 2 * length)), pick(rng, (0, 0, 5, 3 * length))
    parts = 2 if inverse else 1 if onesided else pick(rng, (1, 2))
    x = tensor((rows, length + extra, parts))
    op = ops.Fourier(points, length, step, onesided, inverse, planar)
    if inverse or rng.random() < 0.3:
        return Case(op, (x,))
    window = rng.standard_normal(length)
    return Case(op, (x, constant(window) if rng.random() < 0.7 else tensor((length,))))


def auto_scale(rng: Rng) -> Case:
    count = pick(rng, (1, 7, 64, 481))
    if rng.random() < 0.3:
        return Case(ops.AutoScale(), (tensor((count,), DType.I16),))
    x = _sizes(rng, DType.I16, count) >> pick(rng, (0, 0, 3, 15))
    return Case(ops.AutoScale(), (constant(rng.permutation(x), DType.I16),))


def channels(rng: Rng) -> Case:
    count = pick(rng, (1, 5, 40, 2500))
    x, noise = _of(rng, DType.U32, count), _of(rng, DType.U32, count)
    if rng.random() < 0.3:
        return Case(ops.IntSqrt(), (_of(rng, DType.U64, count),))
    if rng.random() < 0.5:
        scale = pick(rng, (1, 64, 1600, 60000))
        return Case(ops.FixedLog(scale, pick(rng, (0, 3, 31))), (x,))
    table = constant(rng.integers(-(1 << 15), 1 << 15, ops.AutomaticGain.ENTRIES), DType.I16)
    return Case(ops.AutomaticGain(pick(rng, (0, 6, 20, 63))), (x, noise, table))


def random_bits(rng: Rng) -> Case:
    """Counters that overflow, and a last block of any size."""
    words = pick(rng, (1, 2, 3, 4, 5, 31, 1023, 5000))
    state = rng.integers(0, 1 << 64, 3, np.uint64)
    if rng.random() < 0.3:
        state[1] = (1 << 64) - 3
    given = tensor((3,), DType.U64) if rng.random() < 0.3 else constant(state, DType.U64)
    return Case(ops.RandomBits(words), (given,))


FAMILIES = {
    "fixed_fourier": (fourier, (DType.I16, DType.I32)),
    "float_fourier": (float_fourier, (None,)),
    "auto_scale": (auto_scale, (None,)),
    "channels": (channels, (None,)),
    "random_bits": (random_bits, (None,)),
}

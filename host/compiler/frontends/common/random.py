"""Random numbers in a graph: bits from a counter of the runs, which is a state of the release.

Each operator of the file has a key: its seed, or else its position in the graph. The numbers
therefore differ between runs and between operators, and a reset repeats them.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import Emitter, need_rank
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Shape, ShapeError, State, Tensor

_STATE = "random:run"
_SEEDLESS = 1 << 63  # keeps the keys of operators without a seed apart from seeds
_MOST = 1 << 31  # numbers of an operator
_FRACTION = 24  # bits of an f32 value in [0.5, 1)


def uniform(call: Emitter, shape: Shape, seed: int | None) -> Tensor:
    """f32 numbers in [0, 1), multiples of 2^-24. `seed`: 63 bits, or None for a stream of its
    own."""
    count = _count(shape)
    if not count:
        return call.constant(np.zeros(shape, np.float32))
    whole = _upper_bits(call, _words(call, count, seed), _FRACTION)
    y = call.emit(ops.Mul(), whole, call.builder.floats(0.5**_FRACTION))
    return call.reshape(y, shape)


def normal(call: Emitter, shape: Shape, seed: int | None) -> Tensor:
    """f32 numbers of mean 0 and variance 1, by Box and Muller's transform of two uniform ones;
    magnitudes are at most 5.8."""
    count = _count(shape)
    if not count:
        return call.constant(np.zeros(shape, np.float32))
    pairs = math.ceil(count / 2)
    words = _words(call, 2 * pairs, seed)
    radius, turn = (_inside(call, call.part(words, 0, first, pairs)) for first in (0, pairs))
    steep = call.emit(ops.Mul(), call.emit(ops.Log(), radius), call.builder.floats(-2.0))
    radius = call.emit(ops.Sqrt(), steep)
    angle = call.emit(ops.Mul(), turn, call.builder.floats(2 * math.pi))
    both = [call.emit(ops.Mul(), radius, call.emit(f(), angle)) for f in (ops.Cos, ops.Sin)]
    return call.reshape(call.part(call.emit(ops.Concat(0), *both), 0, 0, count), shape)


def multinomial(call: Emitter, scores: Tensor, samples: int, seed: int | None) -> Tensor:
    """[batch, samples] s64: classes drawn with probabilities softmax(scores [batch, classes])."""
    need_rank(scores, 2)
    batch, classes = scores.shape
    if min(batch, classes, samples) < 1:
        raise ShapeError(
            f"expected a batch, classes and samples of at least 1, found {list(scores.shape)} and "
            f"{samples} samples"
        )
    shape = (batch, samples, classes)
    drawn = _inside(call, _words(call, math.prod(shape), seed))
    for _ in range(2):  # Gumbel's numbers: the largest sum with the scores is at a class so drawn
        drawn = call.emit(ops.Neg(), call.emit(ops.Log(), drawn))
    wide = call.reshape(scores, (batch, 1, classes))
    sums = call.emit(ops.Add(), call.reshape(drawn, shape), wide)
    return call.reshape(call.emit(ops.ArgExtreme(2), sums), (batch, samples))


def _count(shape: Shape) -> int:
    """The elements; without any, NumPy multiplies the other sizes too."""
    if math.prod(max(d, 1) for d in shape) > _MOST:
        raise ShapeError(f"expected a shape of at most {_MOST} elements, found {list(shape)}")
    return math.prod(shape)


def _words(call: Emitter, count: int, seed: int | None) -> Tensor:
    builder = call.builder
    if builder.repeats > 1:
        raise ShapeError(
            "expected random numbers outside of loops, or in loops of few steps, found them in a "
            "loop of many"
        )
    key = builder.size | _SEEDLESS if seed is None else seed
    (run,) = builder.once(_STATE, lambda: [_count_runs(call)])
    first = call.constant(np.array([key, 0], np.uint64))
    return call.emit(ops.RandomBits(count), call.emit(ops.Concat(0), first, run))


def _count_runs(call: Emitter) -> Tensor:
    """The number of earlier runs, [1] u64."""
    builder = call.builder
    builder.states[_STATE] = State(_STATE, np.zeros(1, np.uint64))
    run = call.emit(ops.ReadState(_STATE, (1,), DType.U64))
    after = call.emit(ops.Add(), run, call.constant(np.ones(1, np.uint64)))
    builder.emit_all(ops.WriteState(_STATE), [after])
    return run


def _upper_bits(call: Emitter, words: Tensor, bits: int) -> Tensor:
    upper = call.emit(ops.RightShift(), words, call.scalar(32 - bits, words))
    return call.convert(upper, DType.F32)


def _inside(call: Emitter, words: Tensor) -> Tensor:
    """Uniform numbers in (0, 1), symmetric: neither end has a finite logarithm."""
    bits = _FRACTION - 1
    centered = call.emit(ops.Add(), _upper_bits(call, words, bits), call.builder.floats(0.5))
    return call.emit(ops.Mul(), centered, call.builder.floats(0.5**bits))

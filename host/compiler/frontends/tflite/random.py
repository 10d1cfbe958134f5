"""Import of random numbers, and of StableHLO's random bits, which are reproducible from a state.

Salmon et al.: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); names follow the paper.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.common import random
from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_dtype
from edgekit.host.compiler.ir.types import DType, Shape, ShapeError, Tensor

_DEFAULT, _PHILOX, _THREEFRY = 0, 1, 2
_SIZE_LIMIT = 1 << 24  # words

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def bits(call: TfliteCall) -> list[Tensor]:
    """The next state and the bits. The u64 state holds key and counter, and for Philox the upper
    half of the counter; a Philox state of only two words uses the key there."""
    state, algorithm = call.tensor(0, "state"), call.option("Algorithm")
    need_dtype(state, (DType.U64,), "state")
    sizes = (2,) if algorithm == _THREEFRY else (2, 3)
    if algorithm not in (_DEFAULT, _PHILOX, _THREEFRY) or state.shape not in [(s,) for s in sizes]:
        raise ShapeError(f"expected a state of 2 numbers, found {list(state.shape)}")
    if len(call.outputs) != 2:
        raise ShapeError(f"expected 2 outputs, found {len(call.outputs)}")
    made = call.outputs[1]
    if made.dtype not in (DType.I32, DType.U32, DType.I64, DType.U64):
        raise ShapeError(f"expected bits of 32 or 64 each, found {made.dtype.value}")
    count, words = math.prod(made.shape), made.dtype.bytes // 4
    if min(made.shape, default=1) < 1 or count * words > _SIZE_LIMIT:
        raise ShapeError(f"expected sizes of at least 1, found {list(made.shape)}")
    blocks = math.ceil(count * words / (2 if algorithm == _THREEFRY else 4))
    key, counter, *upper = (call.part(state, 0, i, 1) for i in range(state.shape[0]))
    if algorithm == _THREEFRY:
        counters = _add(call, counter, call.counting((blocks,), np.uint64))
        found = _threefry(call, _split_words(call, key), _split_words(call, counters))
        columns = [call.reshape(w, (blocks, 1)) for w in found]
        flat = call.reshape(call.emit(ops.Concat(1), *columns), (2 * blocks,))
        flat = call.part(flat, 0, 0, count * words)
    else:
        whole = call.emit(ops.Concat(0), key, counter, *(upper or [key]))
        flat = call.emit(ops.RandomBits(count * words), whole)
    if words == 2:
        flat = _combine_words(call, flat)
    flat = flat if flat.dtype is made.dtype else call.emit(ops.BitCast(made.dtype), flat)
    after = _add(call, counter, call.constant(np.array([blocks], np.uint64)))
    return [call.emit(ops.Concat(0), key, after, *upper), call.reshape(flat, made.shape)]


def uniform(call: TfliteCall) -> Tensor:
    return random.uniform(call, _drawn_shape(call), _seed(call))


def standard_normal(call: TfliteCall) -> Tensor:
    return random.normal(call, _drawn_shape(call), _seed(call))


def multinomial(call: TfliteCall) -> Tensor:
    scores, samples = call.tensor(0, "logits"), call.integer(1, "number of samples")
    need_dtype(scores, (DType.F32,), "logits")
    return call.convert(random.multinomial(call, scores, samples, _seed(call)), call.out_dtype)


def _drawn_shape(call: TfliteCall) -> Shape:
    shape = call.integers(0, "shape")
    if call.out_dtype is not DType.F32:
        raise ShapeError(f"expected a result of type f32, found {call.out_dtype.value}")
    if any(d < 0 for d in shape):
        raise ShapeError(f"expected sizes of at least 0, found {list(shape)}")
    return shape


def _seed(call: TfliteCall) -> int | None:
    """None if both options are 0, which means a seed of the engine's choice."""
    seed, second = (int(call.option(name) or 0) % (1 << 31) for name in ("Seed", "Seed2"))
    return seed << 32 | second if seed or second else None


def _threefry(call: TfliteCall, key: list[Tensor], counters: list[Tensor]) -> list[Tensor]:
    """Threefry-2x32 of 20 rounds."""
    mixed = _xor(call, _xor(call, *key), call.scalar(_PARITY, key[0]))
    keys = [*key, mixed]
    a, b = (_add(call, x, k) for x, k in zip(counters, key, strict=True))
    for turn in range(5):
        for distance in _ROTATIONS[turn % 2]:
            a = _add(call, a, b)
            left = call.emit(ops.LeftShift(), b, call.scalar(distance, b))
            right = call.emit(ops.RightShift(), b, call.scalar(32 - distance, b))
            b = _xor(call, call.emit(ops.BitwiseOr(), left, right), a)
        a = _add(call, a, keys[(turn + 1) % 3])
        b = _add(call, b, _add(call, keys[(turn + 2) % 3], call.scalar(turn + 1, b)))
    return [a, b]


def _split_words(call: TfliteCall, x: Tensor) -> list[Tensor]:
    """The lower and upper 32 bits of each number."""
    upper = call.emit(ops.RightShift(), x, call.scalar(32, x))
    return [call.convert(x, DType.U32), call.convert(upper, DType.U32)]


def _combine_words(call: TfliteCall, words: Tensor) -> Tensor:
    """64-bit numbers of two words each, the lower one first."""
    pairs = call.convert(call.reshape(words, (words.elements // 2, 2)), DType.U64)
    low, high = (call.reshape(call.part(pairs, 1, i, 1), (pairs.shape[0],)) for i in (0, 1))
    upper = call.emit(ops.LeftShift(), high, call.scalar(32, high))
    return call.emit(ops.BitwiseOr(), upper, low)


def _add(call: TfliteCall, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.Add(), a, b)


def _xor(call: TfliteCall, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.BitwiseXor(), a, b)

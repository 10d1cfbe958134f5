"""Import of StableHLO's random bits: counter-based generators, reproducible from the state.

Salmon et al.: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); names follow the paper.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import Call
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_dtype
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_DEFAULT, _PHILOX, _THREEFRY = 0, 1, 2
_SIZE_LIMIT = 1 << 24  # words

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_ROUNDS = 10
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def bits(call: Call) -> list[Tensor]:
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
        raise ShapeError(f"expected sizes from 1, found {list(made.shape)}")
    blocks = math.ceil(count * words / (2 if algorithm == _THREEFRY else 4))
    key, counter, *upper = (call.part(state, 0, i, 1) for i in range(state.shape[0]))
    counters = _add(call, counter, call.constant(np.arange(blocks, dtype=np.uint64)))
    keys, low = _split_words(call, key), _split_words(call, counters)
    if algorithm == _THREEFRY:
        found = _threefry(call, keys, low)
    else:
        rest = _split_words(call, upper[0]) if upper else keys
        found = _philox(call, keys, [*low, *rest])
    if words == 2:
        found = [_combine_words(call, *found[i : i + 2]) for i in range(0, len(found), 2)]
    columns = [call.reshape(w, (blocks, 1)) for w in found]
    rows = call.emit(ops.Concat(1), *columns) if len(columns) > 1 else columns[0]
    flat = call.part(call.reshape(rows, (rows.elements,)), 0, 0, count)
    flat = flat if flat.dtype is made.dtype else call.emit(ops.BitCast(made.dtype), flat)
    after = _add(call, counter, call.constant(np.array([blocks], np.uint64)))
    return [call.emit(ops.Concat(0), key, after, *upper), call.reshape(flat, made.shape)]


def _threefry(call: Call, key: list[Tensor], counters: list[Tensor]) -> list[Tensor]:
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


def _philox(call: Call, key: list[Tensor], counters: list[Tensor]) -> list[Tensor]:
    """Philox-4x32 of 10 rounds."""
    a, b, c, d = counters
    for turn in range(_PHILOX_ROUNDS):
        keys = [
            _add(call, k, call.scalar(turn * w % (1 << 32), k))
            for k, w in zip(key, _WEYL, strict=True)
        ]
        (low, high), (other_low, other_high) = (
            _split_words(call, _mul(call, call.convert(x, DType.U64), factor))
            for x, factor in zip((a, c), _FACTORS, strict=True)
        )
        a, c = (
            _xor(call, _xor(call, other_high, b), keys[0]),
            _xor(call, _xor(call, high, d), keys[1]),
        )
        b, d = other_low, low
    return [a, b, c, d]


def _split_words(call: Call, x: Tensor) -> list[Tensor]:
    """The lower and upper 32 bits of each number."""
    upper = call.emit(ops.RightShift(), x, call.scalar(32, x))
    return [call.convert(x, DType.U32), call.convert(upper, DType.U32)]


def _combine_words(call: Call, low: Tensor, high: Tensor) -> Tensor:
    wide = call.convert(high, DType.U64)
    upper = call.emit(ops.LeftShift(), wide, call.scalar(32, wide))
    return call.emit(ops.BitwiseOr(), upper, call.convert(low, DType.U64))


def _add(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.Add(), a, b)


def _mul(call: Call, a: Tensor, factor: int) -> Tensor:
    return call.emit(ops.Mul(), a, call.scalar(factor, a))


def _xor(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.BitwiseXor(), a, b)

"""Bitwise operators and shifts of integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import INTEGERS
from edgekit.host.compiler.ir.ops.functions import Function
from edgekit.host.compiler.ir.ops.operands import Binary
from edgekit.host.compiler.ir.traits import OnQuantized
from edgekit.host.compiler.ir.types import Array, DType

__all__ = [
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "IntSqrt",
    "LeftShift",
    "RightShift",
]


@dataclass(frozen=True)
class BitwiseNot(Function):
    kind: ClassVar[str] = "bitwise_not"
    on_quantized = OnQuantized.NEVER
    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def formula(self, x: Array) -> Array:
        return np.invert(x)


@dataclass(frozen=True)
class BitwiseAnd(Binary):
    kind: ClassVar[str] = "bitwise_and"
    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def formula(self, a: Array, b: Array) -> Array:
        return np.bitwise_and(a, b)


@dataclass(frozen=True)
class BitwiseOr(Binary):
    kind: ClassVar[str] = "bitwise_or"
    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def formula(self, a: Array, b: Array) -> Array:
        return np.bitwise_or(a, b)


@dataclass(frozen=True)
class LeftShift(Binary):
    """a · 2^b modulo the type's range; 0 if b is negative or at least the type's width."""

    kind: ClassVar[str] = "left_shift"
    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def formula(self, a: Array, b: Array) -> Array:
        width = 8 * a.dtype.itemsize
        inside = (b >= 0) & (b < width)
        return np.where(inside, np.left_shift(a, np.where(inside, b, 0)), 0)


@dataclass(frozen=True)
class BitwiseXor(Binary):
    kind: ClassVar[str] = "bitwise_xor"
    tflite = "BITWISE_XOR"
    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def formula(self, a: Array, b: Array) -> Array:
        return np.bitwise_xor(a, b)


@dataclass(frozen=True)
class RightShift(Binary):
    """a / 2^b, rounded toward minus infinity; b is clamped to 0 up to the type's width minus
    one."""

    kind: ClassVar[str] = "right_shift"
    tflite = "RIGHT_SHIFT"
    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def formula(self, a: Array, b: Array) -> Array:
        return np.asarray(np.right_shift(a, np.clip(b, 0, 8 * a.dtype.itemsize - 1)))


@dataclass(frozen=True)
class IntSqrt(Function):
    """√x rounded to nearest, as in TensorFlow Lite Micro's audio front ends: at most 2^16 - 1 for
    x below 2^32, else at most 2^32 - 1."""

    kind: ClassVar[str] = "int_sqrt"
    on_quantized = OnQuantized.NEVER
    dtypes: ClassVar[tuple[DType, ...]] = (DType.U64,)

    def formula(self, x: Array) -> Array:
        return np.array([_nearest_root(int(v)) for v in x.reshape(-1)], np.uint64).reshape(x.shape)


def _nearest_root(x: int) -> int:
    root = math.isqrt(x)
    return root + (x - root * root > root and root not in ((1 << 16) - 1, (1 << 32) - 1))

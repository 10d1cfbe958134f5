"""Operators on the bits of whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.graph.checks import WHOLE
from edgekit.host.graph.ops.functions import Function
from edgekit.host.graph.ops.operands import Binary
from edgekit.host.graph.types import Array, DType


@dataclass(frozen=True)
class BitwiseNot(Function):
    kind: ClassVar[str] = "bitwise_not"
    dtypes: ClassVar[tuple[DType, ...]] = WHOLE

    def formula(self, x: Array) -> Array:
        return np.invert(x)


@dataclass(frozen=True)
class BitwiseAnd(Binary):
    kind: ClassVar[str] = "bitwise_and"
    dtypes: ClassVar[tuple[DType, ...]] = WHOLE

    def formula(self, a: Array, b: Array) -> Array:
        return np.bitwise_and(a, b)


@dataclass(frozen=True)
class BitwiseOr(Binary):
    kind: ClassVar[str] = "bitwise_or"
    dtypes: ClassVar[tuple[DType, ...]] = WHOLE

    def formula(self, a: Array, b: Array) -> Array:
        return np.bitwise_or(a, b)


@dataclass(frozen=True)
class LeftShift(Binary):
    """a · 2^b; what b shifts out is lost, and all of a from the width of the type on."""

    kind: ClassVar[str] = "left_shift"
    dtypes: ClassVar[tuple[DType, ...]] = WHOLE

    def formula(self, a: Array, b: Array) -> Array:
        width = 8 * a.dtype.itemsize
        inside = (b >= 0) & (b < width)
        return np.where(inside, np.left_shift(a, np.where(inside, b, 0)), 0)

"""Element-wise operators of several operands, on plain (not quantized) types, broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.graph.checks import need_dtype, operand
from edgekit.host.graph.sums import required
from edgekit.host.graph.types import Array, DType, Operator, Shape, ShapeError, Tensor

NUMBERS = (DType.F32, DType.I32, DType.I64)
_ANY = (*NUMBERS, DType.BOOL, DType.U8, DType.I8)


@dataclass(frozen=True)
class Binary(Operator):
    """y = formula(a, b) of two operands of one type; comparisons give bool."""

    dtypes: ClassVar[tuple[DType, ...]] = NUMBERS
    gives: ClassVar[DType | None] = None  # None: the type of the operands

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        a, b = operand(ins, 0, "first operand"), operand(ins, 1, "second operand")
        need_dtype(a, self.dtypes, "first operand")
        need_dtype(b, (a.dtype,), "second operand")
        return [(broadcast(a.shape, b.shape), self.gives or a.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        with np.errstate(all="ignore"):
            y = self.formula(required(x, 0), required(x, 1))
        return [np.asarray(y).astype(outs[0].dtype.numpy)]

    def formula(self, a: Array, b: Array) -> Array:
        raise TypeError(f"{self.kind} has no formula")


@dataclass(frozen=True)
class Sub(Binary):
    kind: ClassVar[str] = "sub"

    def formula(self, a: Array, b: Array) -> Array:
        return np.subtract(a, b)


@dataclass(frozen=True)
class Div(Binary):
    """Integers: cut off towards zero; by zero gives 0."""

    kind: ClassVar[str] = "div"

    def formula(self, a: Array, b: Array) -> Array:
        if a.dtype == np.float32:
            return np.divide(a, b)
        safe = np.where(b == 0, 1, b)
        quotient = np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe)
        return np.where(b == 0, 0, quotient)


@dataclass(frozen=True)
class Modulo(Binary):
    """`truncated`: the sign of a (C's fmod), else of b; by zero gives 0 for integers."""

    kind: ClassVar[str] = "modulo"
    truncated: bool = False

    def formula(self, a: Array, b: Array) -> Array:
        if a.dtype == np.float32:
            return np.fmod(a, b) if self.truncated else np.mod(a, b)
        safe = np.where(b == 0, 1, b)
        rest = np.fmod(a, safe) if self.truncated else np.mod(a, safe)
        return np.where(b == 0, 0, rest)


@dataclass(frozen=True)
class Pow(Binary):
    kind: ClassVar[str] = "pow"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.power(a.astype(np.float64), b.astype(np.float64))


@dataclass(frozen=True)
class Maximum(Binary):
    kind: ClassVar[str] = "maximum"

    def formula(self, a: Array, b: Array) -> Array:
        return np.maximum(a, b)


@dataclass(frozen=True)
class Minimum(Binary):
    kind: ClassVar[str] = "minimum"

    def formula(self, a: Array, b: Array) -> Array:
        return np.minimum(a, b)


@dataclass(frozen=True)
class PRelu(Binary):
    """a above 0, a · b below."""

    kind: ClassVar[str] = "prelu"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.where(a < 0, a * b, a)


@dataclass(frozen=True)
class Equal(Binary):
    kind: ClassVar[str] = "equal"
    dtypes: ClassVar[tuple[DType, ...]] = (*NUMBERS, DType.BOOL)
    gives: ClassVar[DType | None] = DType.BOOL

    def formula(self, a: Array, b: Array) -> Array:
        return np.equal(a, b)


@dataclass(frozen=True)
class Less(Binary):
    kind: ClassVar[str] = "less"
    gives: ClassVar[DType | None] = DType.BOOL

    def formula(self, a: Array, b: Array) -> Array:
        return np.less(a, b)


@dataclass(frozen=True)
class LessOrEqual(Binary):
    kind: ClassVar[str] = "less_or_equal"
    gives: ClassVar[DType | None] = DType.BOOL

    def formula(self, a: Array, b: Array) -> Array:
        return np.less_equal(a, b)


@dataclass(frozen=True)
class And(Binary):
    kind: ClassVar[str] = "and"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.logical_and(a, b)


@dataclass(frozen=True)
class Or(Binary):
    kind: ClassVar[str] = "or"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.logical_or(a, b)


@dataclass(frozen=True)
class Xor(Binary):
    kind: ClassVar[str] = "xor"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.logical_xor(a, b)


@dataclass(frozen=True)
class Where(Operator):
    """ins: condition (bool), value where true, value where false."""

    kind: ClassVar[str] = "where"

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        condition = operand(ins, 0, "condition")
        a, b = operand(ins, 1, "first value"), operand(ins, 2, "second value")
        need_dtype(condition, (DType.BOOL,), "condition")
        need_dtype(a, _ANY, "first value")
        need_dtype(b, (a.dtype,), "second value")
        return [(broadcast(condition.shape, a.shape, b.shape), a.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return [np.asarray(np.where(required(x, 0), required(x, 1), required(x, 2)))]


@dataclass(frozen=True)
class Convert(Operator):
    """Between plain types, as C converts: towards zero; to bool: whether it is not 0."""

    kind: ClassVar[str] = "convert"
    to: DType = DType.F32

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        return [(x.shape, self.to)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        with np.errstate(all="ignore"):
            return [required(x, 0).astype(self.to.numpy)]


def broadcast(*shapes: Shape) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(list(s)) for s in shapes)
        raise ShapeError(f"expected operands that broadcast, found {listed}") from None

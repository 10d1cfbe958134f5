"""Element-wise operators with several broadcast operands; some also on 8- and 16-bit tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import quantized_elementwise as quantized
from edgekit.host.compiler.ir.checks import (
    FLOATS,
    INTEGERS,
    equal_quantization,
    need_dtype,
    need_known_scales,
    operand,
)
from edgekit.host.compiler.ir.nearest import nearest, rounds_once
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, CostKind, Epilogue, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Array,
    DType,
    MisfitError,
    Operator,
    Shape,
    ShapeError,
    Tensor,
)

__all__ = [
    "Binary",
    "Convert",
    "Div",
    "FloorDiv",
    "Maximum",
    "Minimum",
    "Modulo",
    "PRelu",
    "Pow",
    "SquaredDifference",
    "Sub",
    "Where",
]

NUMBERS = (DType.F32, *INTEGERS)
_ARITHMETIC = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, DType.BOOL)


@dataclass(frozen=True)
class Binary(Operator):
    """y = formula(a, b) of two operands of one dtype; comparisons return bool.

    Unless `on_quantized` is NEVER, operands may be 8-bit quantized; `quantized_reference` computes
    the result.
    """

    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind: ClassVar[CostKind] = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO

    dtypes: ClassVar[tuple[DType, ...]] = NUMBERS
    gives: ClassVar[DType | None] = None  # result dtype; None: that of the operands

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        a, b = operand(ins, 0, "first operand"), operand(ins, 1, "second operand")
        if not self.are_quantized(a, b):
            need_dtype(a, self.dtypes, "first operand")
        need_dtype(b, (a.dtype,), "second operand")
        need_known_scales((a, b), "an operand next to one with a scale")
        if not self.are_quantized(a, b) and a.is_quantized and not equal_quantization(a, b):
            raise ShapeError(
                "expected operands of the same scale and zero point, found different ones"
            )
        return [(broadcast(a.shape, b.shape), self.gives or a.dtype)]

    def are_quantized(self, a: Tensor, b: Tensor) -> bool:
        return self.on_quantized is not OnQuantized.NEVER and a.is_quantized and b.is_quantized

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        a, b, out = required(x, 0), required(x, 1), outs[0]
        left, right = operand(ins, 0, "first operand"), operand(ins, 1, "second operand")
        if self.are_quantized(left, right):
            if rounds_once(out):
                return [nearest(self.formula, out, (a, left), (b, right))]
            return [self.quantized_reference(a, b, left, right, out)]
        with np.errstate(all="ignore"):
            y = self.formula(a, b)
        return [np.asarray(y).astype(out.dtype.numpy)]

    def formula(self, a: Array, b: Array) -> Array:
        raise TypeError(f"{self.kind} has no formula")

    def quantized_reference(
        self, a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor
    ) -> Array:
        raise TypeError(f"{self.kind} does not support quantized values")


@dataclass(frozen=True)
class Sub(Binary):
    kind: ClassVar[str] = "sub"
    onnx = "Sub"
    on_quantized = OnQuantized.RESCALES
    half = Half.YES
    dtypes: ClassVar[tuple[DType, ...]] = _ARITHMETIC

    def formula(self, a: Array, b: Array) -> Array:
        return np.subtract(a, b)

    def quantized_reference(
        self, a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor
    ) -> Array:
        return quantized.subtract(a, b, left, right, out)


@dataclass(frozen=True)
class SquaredDifference(Binary):
    """(a - b)²"""

    kind: ClassVar[str] = "squared_difference"
    tflite = "SQUARED_DIFFERENCE"
    on_quantized = OnQuantized.IF_WRITTEN

    def formula(self, a: Array, b: Array) -> Array:
        return np.square(np.subtract(a, b))

    def quantized_reference(
        self, a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor
    ) -> Array:
        return quantized.squared_difference(a, b, left, right, out)


@dataclass(frozen=True)
class Div(Binary):
    """Quotient; integers round toward zero, and a division by zero gives 0."""

    kind: ClassVar[str] = "div"
    onnx = "Div"
    cost_kind = "function"
    on_quantized = OnQuantized.IF_WRITTEN
    half = Half.WIDENED
    dtypes: ClassVar[tuple[DType, ...]] = _ARITHMETIC

    def formula(self, a: Array, b: Array) -> Array:
        if a.dtype.kind == "f":
            return np.divide(a, b)
        safe = np.where(b == 0, 1, b)
        below = np.floor_divide(a, safe)  # avoids abs(a), which overflows for the minimum
        inexact = (below * safe != a) & ((a < 0) != (safe < 0))
        return np.where(b == 0, 0, below + inexact)

    def quantized_reference(
        self, a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor
    ) -> Array:
        return quantized.divide(a, b, left, right, out)


@dataclass(frozen=True)
class FloorDiv(Binary):
    """Quotient rounded toward minus infinity; an integer division by zero gives 0."""

    kind: ClassVar[str] = "floor_div"
    jumps = True
    tflite = "FLOOR_DIV"

    def formula(self, a: Array, b: Array) -> Array:
        if a.dtype == np.float32:
            return np.floor(np.divide(a, b))
        return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


@dataclass(frozen=True)
class Modulo(Binary):
    """Remainder with the sign of a if `truncated` (C's fmod), else of b; integer modulo 0 is 0."""

    kind: ClassVar[str] = "modulo"
    jumps = True
    truncated: bool = False

    def formula(self, a: Array, b: Array) -> Array:
        if a.dtype == np.float32:
            return np.fmod(a, b) if self.truncated else np.mod(a, b)
        safe = np.where(b == 0, 1, b)
        rest = np.fmod(a, safe) if self.truncated else np.mod(a, safe)
        return np.where(b == 0, 0, rest)


@dataclass(frozen=True)
class Pow(Binary):
    """Power; integers wrap modulo 2^bits. Negative integer exponents give 1 / a^-b rounded toward
    zero, and 0 for a = 0."""

    kind: ClassVar[str] = "pow"
    onnx = "Pow"
    tflite = "POW"
    cost_kind = "function"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32, DType.I32, DType.I64)

    def formula(self, a: Array, b: Array) -> Array:
        if a.dtype != np.float32:
            inverse = np.where(a == -1, 1 - 2 * (b & 1), a == 1)
            return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))
        return np.power(a.astype(np.float64), b.astype(np.float64))


@dataclass(frozen=True)
class Maximum(Binary):
    kind: ClassVar[str] = "maximum"
    onnx = "Max"
    arithmetic = Arithmetic.EXACT
    half = Half.YES
    dtypes: ClassVar[tuple[DType, ...]] = _ARITHMETIC

    def formula(self, a: Array, b: Array) -> Array:
        return np.maximum(a, b)


@dataclass(frozen=True)
class Minimum(Binary):
    kind: ClassVar[str] = "minimum"
    onnx = "Min"
    arithmetic = Arithmetic.EXACT
    half = Half.YES
    dtypes: ClassVar[tuple[DType, ...]] = _ARITHMETIC

    def formula(self, a: Array, b: Array) -> Array:
        return np.minimum(a, b)


@dataclass(frozen=True)
class PRelu(Binary):
    """a if a is positive, else a · b."""

    kind: ClassVar[str] = "prelu"
    onnx = "PRelu"
    tflite = "PRELU"
    on_quantized = OnQuantized.RESCALES
    half = Half.YES
    epilogue_form = Epilogue.IN_REGISTERS
    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    def formula(self, a: Array, b: Array) -> Array:
        return np.where(a < 0, a * b, a)

    def keeps_factors(self, ins: Sequence[Tensor | None]) -> bool:
        return operand(ins, 1, "slopes").data is not None

    def quantized_reference(
        self, a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor
    ) -> Array:
        return quantized.prelu(a, b, left, right, out)


@dataclass(frozen=True)
class Where(Operator):
    """ins: condition (bool), value where true, value where false."""

    kind: ClassVar[str] = "where"
    onnx = "Where"
    tflite = "SELECT_V2"
    elementwise = True
    arithmetic = Arithmetic.EXACT
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        condition = operand(ins, 0, "condition")
        a, b = operand(ins, 1, "first value"), operand(ins, 2, "second value")
        need_dtype(condition, (DType.BOOL,), "condition")
        need_dtype(a, (*ANY, DType.F16, DType.F64), "first value")
        need_dtype(b, (a.dtype,), "second value")
        return [(broadcast(condition.shape, a.shape, b.shape), a.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return [np.asarray(np.where(required(x, 0), required(x, 1), required(x, 2)))]


@dataclass(frozen=True)
class Convert(Operator):
    """Converts plain dtypes as C does: toward zero; to bool: whether the value is nonzero.

    With `saturate`, float to integer conversions clamp, and NaN gives the maximum.
    """

    kind: ClassVar[str] = "convert"
    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    to: DType = DType.F32
    saturate: bool = False

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        if self.saturate and (x.dtype not in (DType.F32, DType.F16) or self.to not in INTEGERS):
            raise ShapeError(
                f"expected f32 or f16 to whole numbers, found {x.dtype.value} to {self.to.value}"
            )
        return [(x.shape, self.to)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)
        with np.errstate(all="ignore"):
            y = values.astype(self.to.numpy)
        if self.saturate:
            ends = np.iinfo(y.dtype)
            low, beyond = float(ends.min), float(ends.max) + 1  # exact: powers of two, or 0
            y = np.where(values < beyond, np.where(values < low, ends.min, y), ends.max)
        return [y.astype(self.to.numpy)]


def broadcast(*shapes: Shape) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(list(s)) for s in shapes)
        raise MisfitError(f"expected operands that broadcast, found {listed}") from None

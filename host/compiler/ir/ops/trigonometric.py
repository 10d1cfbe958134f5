"""Element-wise trigonometric and hyperbolic functions, computed by libm on the board."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.ops.functions import Function
from edgekit.host.compiler.ir.ops.operands import Binary
from edgekit.host.compiler.ir.types import Array, DType

__all__ = ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cosh", "Sinh", "Tan"]


@dataclass(frozen=True)
class Tan(Function):
    kind: ClassVar[str] = "tan"
    onnx = "Tan"

    def formula(self, x: Array) -> Array:
        return np.tan(x)


@dataclass(frozen=True)
class Asin(Function):
    kind: ClassVar[str] = "asin"
    onnx = "Asin"

    def formula(self, x: Array) -> Array:
        return np.arcsin(x)


@dataclass(frozen=True)
class Acos(Function):
    kind: ClassVar[str] = "acos"
    onnx = "Acos"

    def formula(self, x: Array) -> Array:
        return np.arccos(x)


@dataclass(frozen=True)
class Atan(Function):
    kind: ClassVar[str] = "atan"
    onnx = "Atan"

    def formula(self, x: Array) -> Array:
        return np.arctan(x)


@dataclass(frozen=True)
class Atan2(Binary):
    """The angle of the point (x, y) = (b, a)."""

    kind: ClassVar[str] = "atan2"
    tflite = "ATAN2"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.arctan2(a, b)


@dataclass(frozen=True)
class Sinh(Function):
    kind: ClassVar[str] = "sinh"
    onnx = "Sinh"

    def formula(self, x: Array) -> Array:
        return np.sinh(x)


@dataclass(frozen=True)
class Cosh(Function):
    kind: ClassVar[str] = "cosh"
    onnx = "Cosh"

    def formula(self, x: Array) -> Array:
        return np.cosh(x)


@dataclass(frozen=True)
class Asinh(Function):
    kind: ClassVar[str] = "asinh"
    onnx = "Asinh"

    def formula(self, x: Array) -> Array:
        return np.arcsinh(x)


@dataclass(frozen=True)
class Acosh(Function):
    kind: ClassVar[str] = "acosh"
    onnx = "Acosh"

    def formula(self, x: Array) -> Array:
        return np.arccosh(x)


@dataclass(frozen=True)
class Atanh(Function):
    kind: ClassVar[str] = "atanh"
    onnx = "Atanh"

    def formula(self, x: Array) -> Array:
        return np.arctanh(x)

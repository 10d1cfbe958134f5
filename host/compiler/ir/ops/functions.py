"""Unary element-wise functions: a subclass defines a formula, and its kernel has the same name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import quantized_elementwise as quantized
from edgekit.host.compiler.ir.checks import FLOATS, SIGNED, need_dtype, operand
from edgekit.host.compiler.ir.nearest import nearest, rounds_once
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, Tensor

__all__ = [
    "Abs",
    "Ceil",
    "Clip",
    "Cos",
    "Erf",
    "Exp",
    "Floor",
    "Function",
    "Log",
    "Neg",
    "Not",
    "Reciprocal",
    "RoundBfloat16",
    "RoundEven",
    "Rsqrt",
    "Sign",
    "Sin",
    "Sqrt",
]

_SIGNED = (*FLOATS, *SIGNED)


@dataclass(frozen=True)
class Function(Operator):
    """y = formula(x); floats are computed in f64 and rounded once. Fields are parameters.

    8-bit and 16-bit quantized tensors represent real values; `quantized_reference` computes
    quantized results.
    """

    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "function"
    on_quantized = OnQuantized.IF_WRITTEN
    half = Half.NO

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        if not x.is_quantized or self.on_quantized is OnQuantized.NEVER:
            need_dtype(x, self.dtypes, "input")
        return [(x.shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, source = required(x, 0), operand(ins, 0, "input")
        if source.is_quantized:
            if rounds_once(outs[0]):
                return [nearest(self.formula, outs[0], (values, source))]
            return [self.quantized_reference(values, source, outs[0])]
        wide = values.astype(np.float64) if source.dtype in FLOATS else values
        with np.errstate(all="ignore"):
            return [np.asarray(self.formula(wide)).astype(outs[0].dtype.numpy)]

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return quantized.by_real(self.formula, x, source, out)

    def formula(self, x: Array) -> Array:
        raise TypeError(f"{self.kind} has no formula")


@dataclass(frozen=True)
class Exp(Function):
    kind: ClassVar[str] = "exp"
    onnx = "Exp"
    tflite = "EXP"

    def formula(self, x: Array) -> Array:
        return np.exp(x)


@dataclass(frozen=True)
class Log(Function):
    kind: ClassVar[str] = "log"
    onnx = "Log"
    tflite = "LOG"

    def formula(self, x: Array) -> Array:
        return np.log(x)


@dataclass(frozen=True)
class Sqrt(Function):
    kind: ClassVar[str] = "sqrt"
    onnx = "Sqrt"
    tflite = "SQRT"

    def formula(self, x: Array) -> Array:
        return np.sqrt(x)

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return quantized.square_root(x, source, out)


@dataclass(frozen=True)
class Rsqrt(Function):
    """1 / √x"""

    kind: ClassVar[str] = "rsqrt"
    tflite = "RSQRT"

    def formula(self, x: Array) -> Array:
        return 1.0 / np.sqrt(x)

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return quantized.inverse_root(x, source, out)


@dataclass(frozen=True)
class Reciprocal(Function):
    kind: ClassVar[str] = "reciprocal"
    onnx = "Reciprocal"

    def formula(self, x: Array) -> Array:
        return 1.0 / x


@dataclass(frozen=True)
class Sin(Function):
    kind: ClassVar[str] = "sin"
    onnx = "Sin"
    tflite = "SIN"

    def formula(self, x: Array) -> Array:
        return np.sin(x)


@dataclass(frozen=True)
class Cos(Function):
    kind: ClassVar[str] = "cos"
    onnx = "Cos"
    tflite = "COS"

    def formula(self, x: Array) -> Array:
        return np.cos(x)


@dataclass(frozen=True)
class Erf(Function):
    kind: ClassVar[str] = "erf"
    onnx = "Erf"
    half = Half.WIDENED

    def formula(self, x: Array) -> Array:
        return erf(x)


@dataclass(frozen=True)
class Abs(Function):
    kind: ClassVar[str] = "abs"
    onnx = "Abs"
    tflite = "ABS"
    arithmetic = Arithmetic.EXACT
    half = Half.YES
    dtypes: ClassVar[tuple[DType, ...]] = _SIGNED

    def formula(self, x: Array) -> Array:
        return np.abs(x)

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return quantized.absolute(x, source, out)


@dataclass(frozen=True)
class Neg(Function):
    kind: ClassVar[str] = "neg"
    onnx = "Neg"
    tflite = "NEG"
    arithmetic = Arithmetic.EXACT
    half = Half.YES
    on_quantized = OnQuantized.NEVER  # LiteRT's negation ignores scales and zero points
    dtypes: ClassVar[tuple[DType, ...]] = _SIGNED

    def formula(self, x: Array) -> Array:
        return np.negative(x)

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return np.asarray(np.negative(x))


@dataclass(frozen=True)
class Sign(Function):
    kind: ClassVar[str] = "sign"
    jumps = True
    onnx = "Sign"
    tflite = "SIGN"
    arithmetic = Arithmetic.EXACT
    dtypes: ClassVar[tuple[DType, ...]] = _SIGNED

    def formula(self, x: Array) -> Array:
        return np.sign(x)


@dataclass(frozen=True)
class Floor(Function):
    kind: ClassVar[str] = "floor"
    jumps = True
    onnx = "Floor"
    tflite = "FLOOR"
    arithmetic = Arithmetic.EXACT

    def formula(self, x: Array) -> Array:
        return np.floor(x)


@dataclass(frozen=True)
class Ceil(Function):
    kind: ClassVar[str] = "ceil"
    jumps = True
    onnx = "Ceil"
    tflite = "CEIL"
    arithmetic = Arithmetic.EXACT

    def formula(self, x: Array) -> Array:
        return np.ceil(x)


@dataclass(frozen=True)
class RoundEven(Function):
    """Rounds to the nearest integer, ties to even."""

    kind: ClassVar[str] = "round_even"
    jumps = True
    onnx = "Round"
    tflite = "ROUND"
    arithmetic = Arithmetic.EXACT

    def formula(self, x: Array) -> Array:
        return np.rint(x)


@dataclass(frozen=True)
class RoundBfloat16(Function):
    """Rounds to bfloat16 (8 significant bits, f32's exponent range); ties to even."""

    kind: ClassVar[str] = "round_bfloat16"
    jumps = True
    arithmetic = Arithmetic.EXACT

    def formula(self, x: Array) -> Array:
        value = np.asarray(x, np.float32)
        bits = value.view(np.uint32)
        kept = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(value), value, kept.view(np.float32))


@dataclass(frozen=True)
class Not(Function):
    kind: ClassVar[str] = "not"
    onnx = "Not"
    tflite = "LOGICAL_NOT"
    on_quantized = OnQuantized.NEVER
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL,)

    def formula(self, x: Array) -> Array:
        return np.logical_not(x)


@dataclass(frozen=True)
class Clip(Function):
    """Clamps to [low, high]; NaN is preserved."""

    kind: ClassVar[str] = "clip"
    arithmetic = Arithmetic.EXACT
    half = Half.YES
    dtypes: ClassVar[tuple[DType, ...]] = _SIGNED
    low: float = -math.inf
    high: float = math.inf

    def formula(self, x: Array) -> Array:
        return np.minimum(np.maximum(x, self.low), self.high)


def erf(x: Array) -> Array:
    y: Array = np.vectorize(math.erf, otypes=[np.float64])(x)
    return y

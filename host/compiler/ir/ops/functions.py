"""Element-wise functions of one operand. A subclass is a formula; its kernel has the same name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import interpolated
from edgekit.host.compiler.ir import quantized_elementwise as coded
from edgekit.host.compiler.ir.checks import FLOATS, SIGNED, need_dtype, operand
from edgekit.host.compiler.ir.fixed_point import FRACTION_SCALE
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Epilogue, Half, OnCodes
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, Tensor

__all__ = [
    "Abs",
    "Ceil",
    "Clip",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Function",
    "Gelu",
    "GeluTanh",
    "HardSigmoid",
    "LeakyRelu",
    "Log",
    "Neg",
    "Not",
    "Reciprocal",
    "RoundBfloat16",
    "RoundEven",
    "Rsqrt",
    "Sign",
    "Silu",
    "Sin",
    "Softplus",
    "Sqrt",
    "Tanh",
]

_SIGNED = (*FLOATS, *SIGNED)


@dataclass(frozen=True)
class Function(Operator):
    """y = formula(x); floats are computed in f64 and rounded once. Attributes are parameters.

    Codes of 8 and 16 bits stand for real values: `codes` gives those of the result.
    """

    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "function"
    on_codes = OnCodes.IF_WRITTEN
    half = Half.NO

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        if not x.is_coded or self.on_codes is OnCodes.NEVER:
            need_dtype(x, self.dtypes, "input")
        return [(x.shape, x.dtype)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, source = required(x, 0), operand(ins, 0, "input")
        if source.is_coded:
            return [self.codes(values, source, outs[0])]
        wide = values.astype(np.float64) if source.dtype in FLOATS else values
        with np.errstate(all="ignore"):
            return [np.asarray(self.formula(wide)).astype(outs[0].dtype.numpy)]

    def codes(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return coded.by_real(self.formula, x, source, out)

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

    def codes(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return coded.by_real(self.formula, x, source, out, np.trunc)


@dataclass(frozen=True)
class Rsqrt(Function):
    """1 / √x"""

    kind: ClassVar[str] = "rsqrt"
    tflite = "RSQRT"

    def formula(self, x: Array) -> Array:
        return 1.0 / np.sqrt(x)


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
class Tanh(Function):
    kind: ClassVar[str] = "tanh"
    onnx = "Tanh"
    tflite = "TANH"
    on_codes = OnCodes.RESCALES
    half = Half.WIDENED
    fixed_codes = (1 / 128, 0)
    recurrent = True
    epilogue_form = Epilogue.ON_ROWS

    def formula(self, x: Array) -> Array:
        return np.tanh(x)

    def codes(self, x: Array, source: Tensor, out: Tensor) -> Array:
        if out.dtype is DType.I16:
            return interpolated.tanh(x, source)
        return coded.by_real(self.formula, x, source, out)

    def saturation(self) -> tuple[float, float]:
        end = math.atanh(1 - FRACTION_SCALE)  # half a step from 1, as steps are of 1 / 128
        return -end, end


@dataclass(frozen=True)
class Erf(Function):
    kind: ClassVar[str] = "erf"
    onnx = "Erf"
    half = Half.WIDENED

    def formula(self, x: Array) -> Array:
        return _erf(x)


@dataclass(frozen=True)
class Gelu(Function):
    """x · Φ(x), exactly, not by tanh."""

    kind: ClassVar[str] = "gelu"
    arithmetic = Arithmetic.CANCELING
    on_codes = OnCodes.RESCALES
    half = Half.WIDENED
    epilogue_form = Epilogue.ON_ROWS

    def formula(self, x: Array) -> Array:
        return 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)))


@dataclass(frozen=True)
class GeluTanh(Function):
    """The approximation of `Gelu` by tanh."""

    kind: ClassVar[str] = "gelu_tanh"
    arithmetic = Arithmetic.CANCELING
    half = Half.WIDENED
    epilogue_form = Epilogue.ON_ROWS

    def formula(self, x: Array) -> Array:
        return 0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@dataclass(frozen=True)
class Silu(Function):
    """x · σ(alpha · x); made by a pass."""

    kind: ClassVar[str] = "silu"
    half = Half.WIDENED
    epilogue_form = Epilogue.ON_ROWS
    alpha: float = 1.0

    def formula(self, x: Array) -> Array:
        return x / (1.0 + np.exp(-np.float64(np.float32(self.alpha)) * x))


@dataclass(frozen=True)
class Softplus(Function):
    kind: ClassVar[str] = "softplus"
    onnx = "Softplus"
    half = Half.WIDENED

    def formula(self, x: Array) -> Array:
        return np.logaddexp(x, 0.0)


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

    def codes(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return coded.absolute(x, source, out)


@dataclass(frozen=True)
class Neg(Function):
    kind: ClassVar[str] = "neg"
    onnx = "Neg"
    tflite = "NEG"
    arithmetic = Arithmetic.EXACT
    half = Half.YES
    dtypes: ClassVar[tuple[DType, ...]] = _SIGNED

    def formula(self, x: Array) -> Array:
        return np.negative(x)

    def codes(self, x: Array, source: Tensor, out: Tensor) -> Array:
        """The function of the codes themselves, as LiteRT computes it."""
        return np.asarray(np.negative(x))


@dataclass(frozen=True)
class Sign(Function):
    kind: ClassVar[str] = "sign"
    onnx = "Sign"
    tflite = "SIGN"
    arithmetic = Arithmetic.EXACT
    dtypes: ClassVar[tuple[DType, ...]] = _SIGNED

    def formula(self, x: Array) -> Array:
        return np.sign(x)


@dataclass(frozen=True)
class Floor(Function):
    kind: ClassVar[str] = "floor"
    onnx = "Floor"
    tflite = "FLOOR"
    arithmetic = Arithmetic.EXACT

    def formula(self, x: Array) -> Array:
        return np.floor(x)


@dataclass(frozen=True)
class Ceil(Function):
    kind: ClassVar[str] = "ceil"
    onnx = "Ceil"
    tflite = "CEIL"
    arithmetic = Arithmetic.EXACT

    def formula(self, x: Array) -> Array:
        return np.ceil(x)


@dataclass(frozen=True)
class RoundEven(Function):
    """Halves to the even neighbor."""

    kind: ClassVar[str] = "round_even"
    onnx = "Round"
    tflite = "ROUND"
    arithmetic = Arithmetic.EXACT

    def formula(self, x: Array) -> Array:
        return np.rint(x)


@dataclass(frozen=True)
class RoundBfloat16(Function):
    """Rounds to the 8 significant bits of bfloat16, which has f32's exponents; ties to even."""

    kind: ClassVar[str] = "round_bfloat16"
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
    on_codes = OnCodes.NEVER
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL,)

    def formula(self, x: Array) -> Array:
        return np.logical_not(x)


@dataclass(frozen=True)
class Clip(Function):
    """Clamped to [low, high]; NaN stays."""

    kind: ClassVar[str] = "clip"
    arithmetic = Arithmetic.EXACT
    half = Half.YES
    dtypes: ClassVar[tuple[DType, ...]] = _SIGNED
    low: float = -math.inf
    high: float = math.inf

    def formula(self, x: Array) -> Array:
        return np.minimum(np.maximum(x, self.low), self.high)


@dataclass(frozen=True)
class LeakyRelu(Function):
    kind: ClassVar[str] = "leaky_relu"
    onnx = "LeakyRelu"
    on_codes = OnCodes.RESCALES
    half = Half.YES
    keeps_factors = True
    epilogue_form = Epilogue.IN_REGISTERS
    alpha: float = 0.01

    def formula(self, x: Array) -> Array:
        return np.where(x < 0, np.float32(self.alpha).astype(np.float64) * x, x)

    def codes(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return coded.leaky_relu(self.alpha, x, source, out)


@dataclass(frozen=True)
class Elu(Function):
    """scale · x above 0, scale · alpha · (e^x − 1) below: also SELU."""

    kind: ClassVar[str] = "elu"
    on_codes = OnCodes.RESCALES
    half = Half.WIDENED
    alpha: float = 1.0
    scale: float = 1.0

    def formula(self, x: Array) -> Array:
        return self.scale * np.where(x > 0, x, self.alpha * np.expm1(np.minimum(x, 0.0)))


@dataclass(frozen=True)
class HardSigmoid(Function):
    """alpha · x + beta, clamped to [0, 1]."""

    kind: ClassVar[str] = "hard_sigmoid"
    onnx = "HardSigmoid"
    on_codes = OnCodes.RESCALES
    half = Half.WIDENED
    recurrent = True
    epilogue_form = Epilogue.ON_ROWS
    alpha: float = 0.2
    beta: float = 0.5

    def formula(self, x: Array) -> Array:
        return np.clip(self.alpha * x + self.beta, 0.0, 1.0)

    def saturation(self) -> tuple[float, float] | None:
        if self.alpha <= 0:
            return None
        return -self.beta / self.alpha, (1 - self.beta) / self.alpha


def _erf(x: Array) -> Array:
    erf: Array = np.vectorize(math.erf, otypes=[np.float64])(x)
    return erf

"""Unary activation functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import interpolated
from edgekit.host.compiler.ir import quantized_elementwise as quantized
from edgekit.host.compiler.ir.fixed_point import FRACTION_SCALE
from edgekit.host.compiler.ir.ops.functions import Function, erf
from edgekit.host.compiler.ir.traits import Arithmetic, Epilogue, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Tensor

__all__ = [
    "Elu",
    "Gelu",
    "GeluTanh",
    "HardSigmoid",
    "LeakyRelu",
    "Silu",
    "Softplus",
    "Tanh",
]


@dataclass(frozen=True)
class Tanh(Function):
    kind: ClassVar[str] = "tanh"
    onnx = "Tanh"
    tflite = "TANH"
    on_quantized = OnQuantized.RESCALES
    half = Half.WIDENED
    fixed_quantization = (1 / 128, 0)
    recurrent = True
    epilogue_form = Epilogue.ON_ROWS

    def formula(self, x: Array) -> Array:
        return np.tanh(x)

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        if out.dtype is DType.I16:
            return interpolated.tanh(x, source)
        return quantized.by_real(self.formula, x, source, out)

    def saturation(self) -> tuple[float, float]:
        end = math.atanh(1 - FRACTION_SCALE)  # half a quantization step (1/128) from 1
        return -end, end


@dataclass(frozen=True)
class Gelu(Function):
    """x · Φ(x), exact, without the tanh approximation."""

    kind: ClassVar[str] = "gelu"
    arithmetic = Arithmetic.CANCELING
    on_quantized = OnQuantized.RESCALES
    half = Half.WIDENED
    epilogue_form = Epilogue.ON_ROWS

    def formula(self, x: Array) -> Array:
        return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return quantized.by_real(_gelu_f32, x, source, out)


def _gelu_f32(x: Array) -> Array:
    """LiteRT's steps in f32: another order rounds ties to the other side."""
    real = x.astype(np.float32)
    below = (real * np.float32(-math.sqrt(0.5))).astype(np.float64)
    y: Array = np.float32(0.5) * real * (1.0 - erf(below)).astype(np.float32)
    return y


@dataclass(frozen=True)
class GeluTanh(Function):
    """`Gelu` with the tanh approximation."""

    kind: ClassVar[str] = "gelu_tanh"
    arithmetic = Arithmetic.CANCELING
    half = Half.WIDENED
    epilogue_form = Epilogue.ON_ROWS

    def formula(self, x: Array) -> Array:
        return 0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return quantized.by_real(_gelu_tanh_f32, x, source, out)


def _gelu_tanh_f32(x: Array) -> Array:
    """LiteRT's steps in f32, whose last sum loses most of its bits below 0."""
    real = x.astype(np.float32)
    cubed = np.float32(0.044715) * real * real * real
    inner = (np.float32(math.sqrt(2 / math.pi)) * (real + cubed)).astype(np.float64)
    y: Array = np.float32(0.5) * real * (np.float32(1) + np.tanh(inner).astype(np.float32))
    return y


@dataclass(frozen=True)
class Silu(Function):
    """x · σ(alpha · x); created by a pass."""

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
class LeakyRelu(Function):
    kind: ClassVar[str] = "leaky_relu"
    onnx = "LeakyRelu"
    on_quantized = OnQuantized.RESCALES
    half = Half.YES
    rounds_parameters = True
    epilogue_form = Epilogue.IN_REGISTERS
    alpha: float = 0.01

    def formula(self, x: Array) -> Array:
        return np.where(x < 0, np.float32(self.alpha).astype(np.float64) * x, x)

    def keeps_factors(self, ins: Sequence[Tensor | None]) -> bool:
        return True

    def quantized_reference(self, x: Array, source: Tensor, out: Tensor) -> Array:
        return quantized.leaky_relu(self.alpha, x, source, out)


@dataclass(frozen=True)
class Elu(Function):
    """scale · x above 0, scale · alpha · (e^x − 1) below; includes SELU."""

    kind: ClassVar[str] = "elu"
    on_quantized = OnQuantized.RESCALES
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
    on_quantized = OnQuantized.RESCALES
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

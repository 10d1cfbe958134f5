"""Element-wise operators; binary ones broadcast like NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import nearest
from edgekit.host.compiler.ir import quantized_elementwise as quantized
from edgekit.host.compiler.ir.checks import (
    ARITHMETIC,
    FLOATS,
    IMAGES,
    INTEGERS,
    need_dtype,
    need_scale,
    operand,
)
from edgekit.host.compiler.ir.fixed_point import FRACTION_SCALE
from edgekit.host.compiler.ir.interpolated import sigmoid
from edgekit.host.compiler.ir.nearest import rounds_once
from edgekit.host.compiler.ir.quantization import (
    activation_range,
    add_multipliers,
    add_shift,
    mul_multiplier,
    saturate,
    zero_point_of,
)
from edgekit.host.compiler.ir.sums import clamp_float, hard_swish, required
from edgekit.host.compiler.ir.traits import Arithmetic, Epilogue, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Operator,
    Shape,
    ShapeError,
    Tensor,
)

__all__ = ["Add", "Clamp", "HardSwish", "Logistic", "Mul"]


@dataclass(frozen=True)
class Add(Operator):
    """Addition. 8-bit operands with scales are rescaled; without scales they are integers."""

    kind: ClassVar[str] = "add"
    onnx = "Add"
    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "simple"
    on_quantized = OnQuantized.RESCALES
    half = Half.YES
    activation: Activation = Activation.NONE

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        return _infer_binary(ins)

    def keeps_factors(self, ins: Sequence[Tensor | None]) -> bool:
        a, b = operand(ins, 0, "a"), operand(ins, 1, "b")
        return a.data is None and b.data is None and a.shape == b.shape

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        a, b, out = required(x, 0), required(x, 1), outs[0]
        if not out.is_quantized:
            return [_clamp_plain(a + b, self.activation)]
        a_tensor, b_tensor = operand(ins, 0, "a"), operand(ins, 1, "b")
        if rounds_once(out):
            return [nearest.total(a, b, (a_tensor, b_tensor, out), self.activation)]
        factors, shift = add_multipliers(a_tensor, b_tensor, out), add_shift(out)
        a_wide = (a.astype(np.int64) - zero_point_of(a_tensor)) << shift
        b_wide = (b.astype(np.int64) - zero_point_of(b_tensor)) << shift
        total = factors.a.apply(a_wide) + factors.b.apply(b_wide)
        low, high = activation_range(self.activation, out)
        return [saturate(factors.output.apply(total), zero_point_of(out), low, high, out.dtype)]


@dataclass(frozen=True)
class Mul(Operator):
    """Product. 8-bit operands with scales are rescaled; without scales they are integers."""

    kind: ClassVar[str] = "mul"
    onnx = "Mul"
    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "simple"
    on_quantized = OnQuantized.RESCALES
    half = Half.YES
    activation: Activation = Activation.NONE

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        return _infer_binary(ins)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        a, b, out = required(x, 0), required(x, 1), outs[0]
        if not out.is_quantized:
            return [_clamp_plain(a * b, self.activation)]
        a_tensor, b_tensor = operand(ins, 0, "a"), operand(ins, 1, "b")
        if rounds_once(out):
            return [nearest.product(a, b, (a_tensor, b_tensor, out), self.activation)]
        product = (a.astype(np.int64) - zero_point_of(a_tensor)) * (
            b.astype(np.int64) - zero_point_of(b_tensor)
        )
        low, high = activation_range(self.activation, out)
        scaled = mul_multiplier(a_tensor, b_tensor, out).apply(product)
        return [saturate(scaled, zero_point_of(out), low, high, out.dtype)]


@dataclass(frozen=True)
class Clamp(Operator):
    """A standalone clamping activation (RELU, RELU6, …) of any dtype."""

    kind: ClassVar[str] = "clamp"
    elementwise = True
    arithmetic = Arithmetic.EXACT
    cost_kind = "simple"
    on_quantized = OnQuantized.RESCALES
    half = Half.YES
    recurrent = True
    activation: Activation = Activation.RELU

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        return _infer_unary(ins)

    def keeps_factors(self, ins: Sequence[Tensor | None]) -> bool:
        return True

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, out = required(x, 0), outs[0]
        if not out.is_quantized:
            return [_clamp_plain(values, self.activation)]
        x_tensor = operand(ins, 0, "input")
        if rounds_once(out):
            bounds = self.activation.bounds
            return [nearest.nearest(lambda v: np.clip(v, *bounds), out, (values, x_tensor))]
        low, high = activation_range(self.activation, out)
        offset = values.astype(np.int64) - zero_point_of(x_tensor)
        scaled = quantized.ratio32(x_tensor, out).apply(offset)
        return [saturate(scaled, zero_point_of(out), low, high, out.dtype)]


@dataclass(frozen=True)
class Logistic(Operator):
    """1 / (1 + e^−x)."""

    kind: ClassVar[str] = "logistic"
    onnx = "Sigmoid"
    tflite = "LOGISTIC"
    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "function"
    on_quantized = OnQuantized.RESCALES
    half = Half.WIDENED
    fixed_quantization = (FRACTION_SCALE, -128)
    recurrent = True
    epilogue_form = Epilogue.ON_ROWS

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        return _infer_unary(ins)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values, out = required(x, 0), outs[0]
        if not out.is_quantized:
            return [_logistic(values.astype(np.float64)).astype(values.dtype)]
        source = operand(ins, 0, "input")
        if out.dtype is DType.I16:
            return [sigmoid(values, source)]
        if rounds_once(out):
            return [nearest.nearest(_logistic, out, (values, source))]
        return [quantized.by_real(_logistic_f32, values, source, out)]

    def saturation(self) -> tuple[float, float]:
        # Less than half a quantization step from 0 and 1, to which the ends must be rounded.
        end = math.log(2.25 / FRACTION_SCALE - 1)
        return -end, end


def _logistic(x: Array) -> Array:
    magnitude = np.exp(-np.abs(x))
    y: Array = np.where(x >= 0, 1.0, magnitude) / (1.0 + magnitude)
    return y


def _logistic_f32(x: Array) -> Array:
    """LiteRT's steps in f32: another order rounds ties to the other side."""
    one = np.float32(1)
    y: Array = one / (one + np.exp(-x).astype(np.float32))
    return y


@dataclass(frozen=True)
class HardSwish(Operator):
    """x · relu6(x + 3) / 6."""

    kind: ClassVar[str] = "hard_swish"
    onnx = "HardSwish"
    tflite = "HARD_SWISH"
    elementwise = True
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "function"
    on_quantized = OnQuantized.RESCALES
    half = Half.YES
    epilogue_form = Epilogue.IN_REGISTERS

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        need_dtype(operand(ins, 0, "input"), (*ARITHMETIC, DType.F16), "input")
        return _infer_unary(ins)

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        out = outs[0]
        if out.quant is not None:
            values, source = required(x, 0), operand(ins, 0, "input")
            if rounds_once(out):
                return [nearest.nearest(hard_swish, out, (values, source))]
            return [quantized.hard_swish(values, source, out)]
        return [hard_swish(required(x, 0))]

    def saturation(self) -> tuple[float, float]:
        return -3.0, math.inf


def _infer_unary(ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
    x = operand(ins, 0, "input")
    need_dtype(x, (*IMAGES, DType.F16), "input")
    need_scale(x, "input")
    return [(x.shape, x.dtype)]


def _infer_binary(ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
    a, b = operand(ins, 0, "first operand"), operand(ins, 1, "second operand")
    need_dtype(a, (*FLOATS, *INTEGERS), "first operand")
    need_dtype(b, (a.dtype,), "second operand")
    if a.quant is not None or b.quant is not None:
        need_scale(a, "first operand")
        need_scale(b, "second operand")
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ShapeError(
            f"expected operands that broadcast, found {list(a.shape)} and {list(b.shape)}"
        ) from None
    return [(shape, a.dtype)]


def _clamp_plain(y: Array, activation: Activation) -> Array:
    if y.dtype.kind == "f":
        return clamp_float(y, activation)
    low, high = activation.bounds
    return y if activation is Activation.NONE else np.clip(y, low, min(high, 2**31 - 1))

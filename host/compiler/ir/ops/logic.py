"""Comparisons, and logic of booleans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir import quantized_elementwise as quantized
from edgekit.host.compiler.ir.ops.operands import ANY, NUMBERS, Binary
from edgekit.host.compiler.ir.traits import OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Tensor

__all__ = ["And", "Comparison", "Equal", "Less", "LessOrEqual", "Or", "Xor"]


@dataclass(frozen=True)
class Comparison(Binary):
    """Compares quantized operands after rescaling them to a common unit."""

    on_quantized = OnQuantized.IF_WRITTEN

    dtypes: ClassVar[tuple[DType, ...]] = NUMBERS
    gives: ClassVar[DType | None] = DType.BOOL

    def quantized_reference(
        self, a: Array, b: Array, left: Tensor, right: Tensor, out: Tensor
    ) -> Array:
        return self.formula(quantized.comparable(a, left), quantized.comparable(b, right))


@dataclass(frozen=True)
class Equal(Comparison):
    kind: ClassVar[str] = "equal"
    onnx = "Equal"
    tflite = "EQUAL"
    dtypes: ClassVar[tuple[DType, ...]] = ANY

    def formula(self, a: Array, b: Array) -> Array:
        return np.equal(a, b)


@dataclass(frozen=True)
class Less(Comparison):
    kind: ClassVar[str] = "less"
    onnx = "Less"
    tflite = "LESS"

    def formula(self, a: Array, b: Array) -> Array:
        return np.less(a, b)


@dataclass(frozen=True)
class LessOrEqual(Comparison):
    kind: ClassVar[str] = "less_or_equal"
    onnx = "LessOrEqual"
    tflite = "LESS_EQUAL"

    def formula(self, a: Array, b: Array) -> Array:
        return np.less_equal(a, b)


@dataclass(frozen=True)
class And(Binary):
    kind: ClassVar[str] = "and"
    onnx = "And"
    tflite = "LOGICAL_AND"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.logical_and(a, b)


@dataclass(frozen=True)
class Or(Binary):
    kind: ClassVar[str] = "or"
    onnx = "Or"
    tflite = "LOGICAL_OR"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.logical_or(a, b)


@dataclass(frozen=True)
class Xor(Binary):
    kind: ClassVar[str] = "xor"
    onnx = "Xor"
    tflite = "NOT_EQUAL"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL,)

    def formula(self, a: Array, b: Array) -> Array:
        return np.logical_xor(a, b)

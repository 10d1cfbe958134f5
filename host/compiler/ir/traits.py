"""Values of the traits that every operator class declares (`Operator` lists the traits).

A trait is what transforms need to know about an operator. tests/compiler/ir/test_traits.py fails
if a class does not declare one.
"""

from __future__ import annotations

import enum
from typing import Literal

# Operator groups of the cost model: matrix products, image windows, expensive functions, simple
# functions, moved values, and views.
CostKind = Literal["matrix", "window", "function", "simple", "move", "none"]


class Arithmetic(enum.Enum):
    """How the results of two correct kernels may differ."""

    EXACT = enum.auto()  # not at all: values are moved, selected or compared
    ROUNDED = enum.auto()  # each value is computed independently and rounded
    CANCELING = enum.auto()  # like ROUNDED, but x · (1 + f(x)) has errors relative to x
    SUMMED = enum.auto()  # terms may be added in another order
    QUANTIZED = enum.auto()  # like SUMMED, after the operator has quantized its float operand


class OnQuantized(enum.Enum):
    """What a float operator becomes when its operands are quantized."""

    NEVER = enum.auto()  # stays in float
    IF_WRITTEN = enum.auto()  # quantized only if the model file quantizes around it
    RESCALES = enum.auto()  # also quantized by `edgekit quantize`
    KEEPS = enum.auto()  # computes on quantized values and keeps their scale
    MOVES = enum.auto()  # moves or selects quantized values, which keep their scale
    SUMS = enum.auto()  # multiplies quantized values by quantized weights

    @property
    def keeps_scale(self) -> bool:
        return self in (OnQuantized.KEEPS, OnQuantized.MOVES)


class Half(enum.Enum):
    """Whether there are kernels for tensors of f16."""

    NO = enum.auto()
    YES = enum.auto()  # half the bytes and half the time
    WIDENED = enum.auto()  # half the bytes, but functions of each value, or f32 arithmetic


class Epilogue(enum.Enum):
    """Whether a product's kernel can apply a function to its results (conv/epilogue.h)."""

    NO = enum.auto()
    IN_REGISTERS = enum.auto()  # before results are stored
    ON_ROWS = enum.auto()  # on stored rows: pays above some number of channels

"""The values of the traits that every operator class declares (`Operator` lists the traits).

A trait is what transforms must know of an operator. tests/compiler/ir/test_traits.py fails where
a class leaves one open.
"""

from __future__ import annotations

import enum
from typing import Literal

# Groups that the cost model treats alike: products of matrices, windows of images, functions of
# many instructions, functions of few, moved values, and new names for the same values.
CostKind = Literal["matrix", "window", "function", "simple", "move", "none"]


class Arithmetic(enum.Enum):
    """How the results of two correct kernels may differ."""

    EXACT = enum.auto()  # not at all: values are moved, picked or compared
    ROUNDED = enum.auto()  # each value is computed alone and rounded
    CANCELING = enum.auto()  # likewise, but x · (1 + f(x)) may be off by units of x
    SUMMED = enum.auto()  # terms are added in another order
    QUANTIZED = enum.auto()  # likewise, after the operator has quantized its float operand


class OnCodes(enum.Enum):
    """What an operator on floats becomes when its operands are quantized."""

    NEVER = enum.auto()  # it stays in floats
    IF_WRITTEN = enum.auto()  # computes on codes where the model's file quantizes around it
    RESCALES = enum.auto()  # likewise, and where `--quantize` chooses it
    KEEPS = enum.auto()  # computes on codes and keeps their scale
    MOVES = enum.auto()  # moves codes, or picks some: their scale stays
    SUMS = enum.auto()  # multiplies codes by weights that are codes, too

    @property
    def keeps_scale(self) -> bool:
        return self in (OnCodes.KEEPS, OnCodes.MOVES)


class Half(enum.Enum):
    """Whether there are kernels for tensors of f16."""

    NO = enum.auto()
    YES = enum.auto()  # half the bytes, and half the time
    WIDENED = enum.auto()  # half the bytes; each value is computed in f32


class Epilogue(enum.Enum):
    """Whether a product's kernel can apply a function to its results (conv/epilogue.h)."""

    NO = enum.auto()
    IN_REGISTERS = enum.auto()  # before they are stored
    ON_ROWS = enum.auto()  # after rows are stored: pays from some channels on

"""How an operator that multiplies is computed, and why just so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.kb.gemm_table import Row
from edgekit.kb.method import Split

Family = Literal[
    "in_place",  # operands where they are, weights packed: conv/f32_conv.c, conv/i8_conv.c
    "winograd",
    "depthwise",
    "wide",  # 16-bit images
    "unpacked",  # both operands as they are: product/matmul.c
    "planar",  # depthwise, on channel-major images
    "sparse",  # pairs of weights that are not zero, on channel-major images
    "strips",  # the same for a single row
    "outlier",  # products of bytes, and of floats where these are large
    "recurrent",
    "chain",  # several convolutions, some rows at a time
    "nna",
]


@dataclass(frozen=True, order=True)
class OperatorMethod:
    """The kernels of a family, the register tile of `mr` rows (pixels) and `nr` columns (channels)
    where they have one, the axis that is walked last and shared by threads first ("m": rows), and
    the type that is multiplied."""

    family: Family
    precision: str
    mr: int | None = None
    nr: int | None = None
    split: Split = "m"


@dataclass(frozen=True)
class RunnerUp:
    """The next best method, and its price in prices of the one that was taken."""

    method: OperatorMethod
    price: float


@dataclass(frozen=True)
class Choice:
    """Why an operator is computed as it is: the rule that said so, a sentence, the row of a table
    if it was one, and what else there was."""

    rule: str  # exact, relaxed:FEATURE, analytic, layouts, or only: there is no other
    why: str
    row: Row | None = None
    runner_up: RunnerUp | None = None


ONLY = Choice("only", "this form has one kernel on this instruction set")
BY_LAYOUTS = Choice("layouts", "the layouts of all images together cost least by their table")
CHAINED = Choice("analytic", "images between its members leave the cache or do not fit memory")


@dataclass(frozen=True)
class Compiled:
    """An operator that multiplies, as it was compiled: the kernel that is called, its method, and
    the members of a chain."""

    kernel: str
    method: OperatorMethod
    choice: Choice
    members: tuple[Compiled, ...] = ()

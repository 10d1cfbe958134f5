"""A measured product: one row of the history."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.kb.features import GemmShape, Packed, packed_of

SOURCES = ("tuner", "benchmark", "profile", "import")
UNITS = ("seconds", "cycles", "instructions")  # most relevant first
DTYPES = ("f32", "f16", "s8", "u8")


class Measured(Protocol):
    """The fields common to all rows of the history."""

    @property
    def board(self) -> str: ...
    @property
    def platform(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def cost(self) -> float: ...
    @property
    def default_cost(self) -> float: ...
    @property
    def source(self) -> str: ...
    @property
    def unit(self) -> str: ...


def check_measured(m: Measured, sources: Collection[str], units: Collection[str]) -> None:
    """Raises ValueError, with a one-line message, for values that cannot have been measured."""
    for name in ("cost", "default_cost"):
        value = getattr(m, name)
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"expected {name} above 0, found {value}")
    for name, known in (("source", sources), ("unit", units)):
        if getattr(m, name) not in known:
            raise ValueError(f"expected a {name} of {', '.join(known)}, found '{getattr(m, name)}'")
    if m.threads < 1:
        raise ValueError(f"expected 1 thread or more, found {m.threads}")
    if not m.platform or not m.board:
        raise ValueError("expected a board and a platform, found an empty name")


@dataclass(frozen=True)
class Measurement:
    """A product's `cost` with `method`, in `unit`: the tenth percentile of a run, or the median
    of an import.

    `default_cost` is the default method's in the same run, so that noise and differences between
    days cancel. An emulated board has no meaningful times: its instructions are counted. Cycles
    are of simulated time. `spread` is (p90 - p10) / median. Packing an operand ahead
    (`packed`) is not part of the cost. `cpu` identifies x86 CPUs, since their platform covers
    several; "" elsewhere.
    """

    board: str
    platform: str
    dtype: str
    threads: int
    shape: GemmShape
    method: Method
    cost: float
    default_cost: float
    spread: float
    when: str
    kit_version: str
    source: str
    unit: str = "seconds"
    packed: Packed = "none"
    cpu: str = ""

    def __post_init__(self) -> None:
        check_measured(self, SOURCES, UNITS)
        if not (math.isfinite(self.spread) and self.spread >= 0):
            raise ValueError(f"expected a spread of 0 or more, found {self.spread}")
        packed_of(self.packed)
        if self.dtype not in DTYPES:
            raise ValueError(f"expected a dtype of {', '.join(DTYPES)}, found '{self.dtype}'")

    @property
    def ratio(self) -> float:
        """Cost over the default method's cost: below 1 is better."""
        return self.cost / self.default_cost

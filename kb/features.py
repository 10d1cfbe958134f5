"""Features of one matrix product, and their indices in the sequences of a table.

C[m, n] = A[m, k] · B[k, n]. Source: the patent "a method and device for improving GEMM performance"
(scale, shape ratios, data sequences, nearest entry). The patent orders the features differently in
two places; here they are always named.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

StateBinding = Literal["low", "high"]
Packed = Literal["none", "a", "b"]  # the operand packed in advance, as weights are

DEFAULT_SHAPE_SEQUENCE = (3, 8, 30, 80, 200, 500, 800, 1000, 2000, 3000)
DEFAULT_SCALE_SEQUENCE = (1, 10, 100, 1000)


def index_of(value: int, sequence: Sequence[int], tie: StateBinding = "low") -> int:
    """The position of the entry nearest to `value` in an ascending sequence.

    `tie` selects the lower or the higher position if `value` is halfway between two entries.
    """
    right = bisect.bisect_left(sequence, value)
    if right == 0:
        return 0
    if right == len(sequence):
        return right - 1
    below, above = value - sequence[right - 1], sequence[right] - value
    if below == above:
        return right - 1 if tie == "low" else right
    return right - 1 if below < above else right


@dataclass(frozen=True, order=True)
class GemmShape:
    """The dims of one product, all ≥ 0. Raises ValueError for a negative one."""

    m: int
    k: int
    n: int

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.n) < 0:
            raise ValueError(f"expected sizes of 0 or more, found m={self.m} k={self.k} n={self.n}")

    @property
    def scale(self) -> int:
        """gcd(m, k, n); 1 for an empty product."""
        return math.gcd(self.m, self.k, self.n) or 1

    @property
    def ratios(self) -> GemmShape:
        """(m/g, k/g, n/g) for the scale g."""
        g = self.scale
        return GemmShape(self.m // g, self.k // g, self.n // g)

    @property
    def operations(self) -> int:
        """Floating-point (or integer) operations: 2·m·k·n."""
        return 2 * self.m * self.k * self.n

    def log_distance(self, other: GemmShape) -> float:
        """The distance of two shapes: the squared distance of the logarithms of (1 + size).

        Written out so that device/kernels/gemm/table.c computes bit-identical results.
        """
        dm = math.log1p(self.m) - math.log1p(other.m)
        dk = math.log1p(self.k) - math.log1p(other.k)
        dn = math.log1p(self.n) - math.log1p(other.n)
        return dm * dm + dk * dk + dn * dn


@dataclass(frozen=True)
class Sequences:
    """Ascending data sequences of each feature; they are stored in the table itself."""

    m: tuple[int, ...] = DEFAULT_SHAPE_SEQUENCE
    k: tuple[int, ...] = DEFAULT_SHAPE_SEQUENCE
    n: tuple[int, ...] = DEFAULT_SHAPE_SEQUENCE
    scale: tuple[int, ...] = DEFAULT_SCALE_SEQUENCE
    tie: StateBinding = "low"

    def __post_init__(self) -> None:
        for name in ("m", "k", "n", "scale"):
            values = getattr(self, name)
            if not values or any(a >= b for a, b in itertools.pairwise(values)):
                raise ValueError(f"expected an ascending sequence for {name}, found {values}")


@dataclass(frozen=True, order=True)
class GemmKey:
    """Feature indices of one product on one platform, for one dtype, thread count and `packed`."""

    platform: int
    m: int
    k: int
    n: int
    scale: int
    dtype: str = "f32"
    threads: int = 1
    packed: Packed = "none"
    form: str = ""  # `Form.name` of a model's operator; empty for a product of the library


def key_of(
    shape: GemmShape,
    platform: int,
    sequences: Sequences,
    dtype: str = "f32",
    threads: int = 1,
    packed: Packed = "none",
    form: str = "",
) -> GemmKey:
    """The lookup key of a product."""
    ratios = shape.ratios
    return GemmKey(
        platform=platform,
        m=index_of(ratios.m, sequences.m, sequences.tie),
        k=index_of(ratios.k, sequences.k, sequences.tie),
        n=index_of(ratios.n, sequences.n, sequences.tie),
        scale=index_of(shape.scale, sequences.scale, sequences.tie),
        dtype=dtype,
        threads=threads,
        packed=packed,
        form=form,
    )


def packed_of(text: str) -> Packed:
    """Parses a value of `Packed`; raises ValueError for any other text."""
    known: dict[str, Packed] = {"none": "none", "a": "a", "b": "b"}
    if text not in known:
        raise ValueError(f"expected packed to be none, a or b, found '{text}'")
    return known[text]

"""What kernels on either layout of images cost on a board: measured, kept by core type.

A table is JSON: operators that a board ran one by one, with what they had to do and how many
nanoseconds (or instructions, on an emulator) they took. A cost is a sum of rates that fits all
operators of a kernel, times what the most similar ones deviate from it: so small layers, and those
that wait for memory, are as they were measured.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from edgekit.device.errors import InputError

SCHEMA = "edgekit.kb.layouts/1"
KERNELS = (
    "dense", "sparse", "depthwise", "planar_depthwise", "transpose", "dense_row", "sparse_row",
    "dense_rows", "sparse_rows",
)  # fmt: skip
_NEAR = 0.05  # of squared logarithms: closer cases count alike


@dataclass(frozen=True)
class Work:
    """What one kernel has to do: products and values of the output, in whole vectors, and pieces
    that are started one by one."""

    products: int
    values: int
    pieces: int = 1

    @property
    def sizes(self) -> tuple[float, float, float]:
        return float(self.products), float(self.values), float(self.pieces)


@dataclass(frozen=True)
class Case:
    """One operator that was measured; `kernel` is one of KERNELS."""

    kernel: str
    work: Work
    cost: float


@dataclass(frozen=True)
class LayoutTable:
    """`unit`: of all costs, nanoseconds or instructions."""

    platform: str
    unit: str
    cases: tuple[Case, ...]

    def cost(self, kernel: str, work: Work) -> float:
        """The cost of an operator that was perhaps never measured."""
        cases = self._of(kernel)
        plain = _total(self._rates[kernel], work)
        weights = np.array([_likeness(work, case.work) for case in cases])
        return plain * math.exp(float(weights @ self._deviations[kernel]) / float(weights.sum()))

    @property
    def error(self) -> float:
        """Median of |fitted / measured - 1|, each case estimated from the others."""
        errors = []
        for kernel in KERNELS:
            cases = self._of(kernel)
            for i, case in enumerate(cases):
                others = LayoutTable(self.platform, self.unit, cases[:i] + cases[i + 1 :])
                errors.append(abs(others.cost(kernel, case.work) / case.cost - 1))
        return float(np.median(errors))

    def text(self) -> str:
        """The text of the table's file: a line per case."""
        lines = [
            json_line([c.kernel, c.work.products, c.work.values, c.work.pieces, round(c.cost)])
            for c in self.cases
        ]
        head = f'"schema": "{SCHEMA}",\n "platform": "{self.platform}",\n "unit": "{self.unit}"'
        return f'{{{head},\n "cases": [\n  ' + ",\n  ".join(lines) + "\n ]}\n"

    def _of(self, kernel: str) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.kernel == kernel)

    @functools.cached_property
    def _rates(self) -> dict[str, tuple[float, ...]]:
        kernels = {case.kernel for case in self.cases}
        return {kernel: _fitted(self._of(kernel)) for kernel in kernels}

    @functools.cached_property
    def _deviations(self) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        return {
            kernel: np.array(
                [math.log(c.cost / _total(rates, c.work)) for c in self._of(kernel)], np.float64
            )
            for kernel, rates in self._rates.items()
        }


def json_line(values: Sequence[str | int]) -> str:
    return msgspec.json.encode(values).decode()


def _total(rates: tuple[float, ...], work: Work) -> float:
    return max(sum(r * s for r, s in zip(rates, work.sizes, strict=True)), 1e-9)


def _likeness(a: Work, b: Work) -> float:
    pairs = zip(a.sizes, b.sizes, strict=True)
    distance = sum(math.log((x + 1) / (y + 1)) ** 2 for x, y in pairs)
    return 1 / (distance + _NEAR) ** 2


def _fitted(cases: Sequence[Case]) -> tuple[float, ...]:
    """Rates per product, value and piece of at least 0 with the least relative errors, of all
    ways to leave some out."""
    found, least = (0.0, 0.0, 0.0), float("inf")
    for kept in (k for n in (1, 2, 3) for k in itertools.combinations(range(3), n)):
        a = np.array([[c.work.sizes[i] / c.cost for i in kept] for c in cases])
        solved = np.linalg.lstsq(a, np.ones(len(cases)), rcond=None)[0]
        error = float(np.square(a @ solved - 1).sum())
        if (solved >= 0).all() and error < least:
            values = dict(zip(kept, solved.tolist(), strict=True))
            found, least = (values.get(0, 0.0), values.get(1, 0.0), values.get(2, 0.0)), error
    return found


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    platform: str
    unit: str
    cases: list[tuple[str, int, int, int, int]]


def read_layouts(path: Path) -> LayoutTable:
    """Raises InputError for a file that is none."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise InputError(f"{path}: expected a table of layouts, found: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: expected a table of layouts, found: {error}") from None
    cases = tuple(Case(kernel, Work(*work), float(cost)) for kernel, *work, cost in file.cases)
    named = {case.kernel for case in cases}
    if file.schema != SCHEMA or named != set(KERNELS) or min(c.cost for c in cases) <= 0:
        raise InputError(
            f"{path}: expected {SCHEMA} with costs of {', '.join(KERNELS)}, found "
            f"{file.schema} with {', '.join(sorted(named))}; measure it anew: edgekit tune layouts"
        )
    return LayoutTable(file.platform, file.unit, cases)

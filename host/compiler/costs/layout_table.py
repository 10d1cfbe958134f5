"""Measured costs of kernels on both image layouts (NHWC and channels-first), per core type.

A table is a JSON file. For each kernel it lists operators that were run one by one, each with its
products, values, pieces and inputs, and its cost in nanoseconds, estimated cycles or instructions
on an emulator.

A table with the same operators as another one names that table (`like`) and contains only costs;
where the vector length differs, the products and values, or the pieces, that differ precede the
cost. Costs are predicted by linear rates fitted to all operators of a kernel, corrected by the
deviations of the most similar ones, so small and memory-bound layers match their measurements.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from edgekit.device.runtime.errors import InputError
from edgekit.host.common.files import read_file
from edgekit.kb.decoding import decode_json

SCHEMA = "edgekit.kb.layouts/1"
KERNELS = (
    "dense", "sparse", "depthwise", "depthwise_chw", "transpose", "dense_row", "sparse_row",
    "dense_rows", "sparse_rows",
)  # fmt: skip
WINDOWS = ("dense_window", "sparse_window")  # both or none: x86 has no such kernels
I8_KERNELS = ("dense_i8", "sparse_i8")  # both or none: pointwise 8-bit quantized layers
CHAIN = "chain"  # a depthwise and a 1x1 convolution fused over pixels; optional in a table
_SIZES = 4  # fields of `KernelWork`
_SOURCES = {
    "nanoseconds": "measured on",
    "cycles": "estimated for",
    "instructions": "counted for",
}
_NEAR = 0.05  # in squared logarithms: cases closer than this have equal weight
_EQUAL_ERRORS = 1e-12  # of fits


@dataclass(frozen=True)
class KernelWork:
    """Work of one kernel: products and output values, both rounded up to full vectors, separately
    launched pieces, and input values; `inputs` is 0 if unknown."""

    products: int
    values: int
    pieces: int = 1
    inputs: int = 0

    @property
    def sizes(self) -> tuple[float, ...]:
        return tuple(map(float, (self.products, self.values, self.pieces, self.inputs)))


@dataclass(frozen=True)
class LayoutCase:
    """One measured operator; `kernel` is one of the names above."""

    kernel: str
    work: KernelWork
    cost: float


@dataclass(frozen=True)
class LayoutTable:
    """`unit` applies to all costs: nanoseconds, cycles or instructions. `lent`: the factor that the
    costs of optional kernels were raised by, because the table is of another core."""

    platform: str
    unit: str
    cases: tuple[LayoutCase, ...]
    lent: float = 1.0

    def source(self, platform: str) -> str:
        """Where the costs are from, for a board of `platform`: an estimate, or one of another
        core's, is not called measured there."""
        found = f"{_SOURCES.get(self.unit, 'of')} {self.platform}"
        return found if platform == self.platform else f"{found} and borrowed"

    def knows(self, kernel: str) -> bool:
        """Whether operators of the kernel were measured."""
        return any(case.kernel == kernel for case in self.cases)

    def cost(self, kernel: str, work: KernelWork) -> float:
        """Predict the cost of an operator, measured or not."""
        cases = self._cases_of(kernel)
        if not any(case.work.inputs for case in cases):
            work = replace(work, inputs=0)
        if all(case.work.pieces == 1 for case in cases):
            work = replace(work, pieces=1)
        plain = _estimate_cost(self._rates[kernel], work)
        weights = np.array([_similarity_weight(work, case.work) for case in cases])
        return plain * math.exp(float(weights @ self._deviations[kernel]) / float(weights.sum()))

    def text(self, like: LayoutTable | None = None) -> str:
        """Return the table as file text, one line per kernel. With `like`, write only costs and
        the sizes that differ from it; raises ValueError if the operators differ."""
        lines = []
        for kernel in filter(self.knows, (*KERNELS, *WINDOWS, *I8_KERNELS, CHAIN)):
            cases = self._cases_of(kernel)
            values: list[object] = [[*_known_sizes(c.work), round(c.cost)] for c in cases]
            if like is not None:
                values = [
                    _encode_case(*both) for both in zip(cases, like._cases_of(kernel), strict=False)
                ]
                if None in values or len(cases) != len(like._cases_of(kernel)):
                    raise ValueError(
                        f"expected the operators of the table of {like.platform}, found others"
                    )
            lines.append(f'"{kernel}": {msgspec.json.encode(values).decode()}')
        heads = {"schema": SCHEMA, "platform": self.platform, "unit": self.unit}
        if like is not None:
            heads["like"] = like.platform
        head = ",\n ".join(f'"{name}": "{value}"' for name, value in heads.items())
        name = "cases" if like is None else "costs"
        return f'{{{head},\n "{name}": {{\n  ' + ",\n  ".join(lines) + "\n }}\n"

    def _cases_of(self, kernel: str) -> tuple[LayoutCase, ...]:
        return tuple(case for case in self.cases if case.kernel == kernel)

    @functools.cached_property
    def _rates(self) -> dict[str, tuple[float, ...]]:
        kernels = {case.kernel for case in self.cases}
        return {kernel: _fit_rates(self._cases_of(kernel)) for kernel in kernels}

    @functools.cached_property
    def _deviations(self) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        return {
            kernel: np.array(
                [math.log(c.cost / _estimate_cost(rates, c.work)) for c in self._cases_of(kernel)],
                np.float64,
            )
            for kernel, rates in self._rates.items()
        }


def _known_sizes(work: KernelWork) -> tuple[int, ...]:
    sizes = tuple(map(int, work.sizes))
    return sizes if work.inputs else sizes[:-1]


def _encode_case(case: LayoutCase, other: LayoutCase) -> object:
    """Encode a case as its cost, preceded by any sizes that differ from `other`; None if it is
    not the same operator."""
    cost, work = round(case.cost), case.work
    if work == other.work:
        return cost
    if work == replace(other.work, pieces=work.pieces):
        return work.pieces, cost
    if work == replace(other.work, products=work.products, values=work.values):
        return work.products, work.values, cost
    return None


def _with_cost(case: LayoutCase, like: _LikeCost) -> LayoutCase:
    """Decode the result of `_encode_case`."""
    if isinstance(like, int):
        return replace(case, cost=float(like))
    *sizes, cost = like
    names = ("pieces",) if len(sizes) == 1 else ("products", "values")
    work = replace(case.work, **dict(zip(names, sizes, strict=True)))
    return LayoutCase(case.kernel, work, float(cost))


def _estimate_cost(rates: tuple[float, ...], work: KernelWork) -> float:
    return max(sum(r * s for r, s in zip(rates, work.sizes, strict=True)), 1e-9)


def _similarity_weight(a: KernelWork, b: KernelWork) -> float:
    pairs = zip(a.sizes, b.sizes, strict=True)
    distance = sum(math.log((x + 1) / (y + 1)) ** 2 for x, y in pairs)
    return 1 / (distance + _NEAR) ** 2


def _fit_rates(cases: Sequence[LayoutCase]) -> tuple[float, ...]:
    """Fit nonnegative rates per product, value, piece and input; try every subset and keep the
    one with the least squared relative error, of equal ones the smallest: how NumPy rounds, which
    differs between its versions, must not decide."""
    sizes = [i for i in range(_SIZES) if any(c.work.sizes[i] for c in cases)]
    ways = (k for n in range(1, len(sizes) + 1) for k in itertools.combinations(sizes, n))
    found, least = (0.0,) * _SIZES, float("inf")
    for kept in ways:
        a = np.array([[c.work.sizes[i] / c.cost for i in kept] for c in cases])
        solved = np.linalg.lstsq(a, np.ones(len(cases)), rcond=None)[0]
        error = float(np.square(a @ solved - 1).sum())
        if (solved >= 0).all() and error < least - _EQUAL_ERRORS:
            values = dict(zip(kept, solved.tolist(), strict=True))
            found, least = tuple(values.get(i, 0.0) for i in range(_SIZES)), error
    return found


_Values = Annotated[list[int], msgspec.Meta(min_length=4, max_length=5)]  # sizes, cost
_LikeCost = int | Annotated[list[int], msgspec.Meta(min_length=2, max_length=3)]


class _Head(msgspec.Struct):
    schema: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    platform: str
    unit: str
    cases: dict[str, list[_Values]] = {}  # by kernel
    like: str = ""  # the platform whose table has the cases of these `costs`
    costs: dict[str, list[_LikeCost]] = {}

    def every_case(self, folder: Path) -> tuple[LayoutCase, ...]:
        if not self.like:
            named = [(kernel, case) for kernel, cases in self.cases.items() for case in cases]
            return tuple(
                LayoutCase(kernel, KernelWork(*work), float(cost))
                for kernel, (*work, cost) in named
            )
        other_path = folder / f"{self.like}.json"
        other = _read(other_path)
        if other.like:
            raise InputError(f"{other_path}: expected a table with cases, found only costs")
        costs = {kernel: iter(costs) for kernel, costs in self.costs.items()}
        cases = [case for case in other.every_case(folder) if case.kernel in costs]
        return tuple(_with_cost(case, next(costs[case.kernel], 0)) for case in cases)


def read_layouts(path: Path) -> LayoutTable:
    """Raises InputError for a file that is not a layout table."""
    file = _read(path)
    cases = file.every_case(path.parent)
    named = {case.kernel for case in cases}
    optional = [named & set(pair) for pair in (WINDOWS, I8_KERNELS)]
    is_complete = named - {CHAIN} == {*KERNELS}.union(*optional)
    is_complete &= all(len(pair) != 1 for pair in optional)
    if not is_complete or min(c.cost for c in cases) <= 0:
        raise InputError(
            f"{path}: expected costs above 0 of {', '.join(KERNELS)}, found "
            f"{', '.join(sorted(named)) or 'none'}; measure it again: "
            "edgekit lab tune cost --layouts"
        )
    return LayoutTable(file.platform, file.unit, cases)


def _read(path: Path) -> _File:
    try:
        data = read_file(path)
        schema = decode_json(data, _Head).schema
        if schema != SCHEMA:
            raise InputError(
                f"{path}: expected schema {SCHEMA}, found {schema}; "
                "measure it again: edgekit lab tune cost --layouts"
            )
        return decode_json(data, _File)
    except OSError as error:
        raise InputError(f"{path}: expected a table of layouts, found: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: expected a table of layouts, found: {error}") from None

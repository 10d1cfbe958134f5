"""Estimates matrix products on a core that we do not have, for each method of the GEMM library
and for each path of the outlier split."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.device.runtime.arrays.outlier_library import PATHS, OutlierReport
from edgekit.device.runtime.kernel_facts import OUTLIER_PADDING
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.toolchain.gemm_blob import table_blob
from edgekit.host.simulator.programs import Programs
from edgekit.host.simulator.run import SimulatedCost
from edgekit.host.simulator.target import SimulatedCore
from edgekit.host.simulator.timed import RunnerCalls, RunnerCommand
from edgekit.kb.features import GemmShape, Packed

_DTYPES = ("f32", "s8", "u8", "f16")  # ek_gemm_dtype; of A
_SIDES = {"none": -1, "a": 0, "b": 1}
_SPLITS = ("m", "n")
_MOST_METHODS = 100  # per run

# The first rows and columns of a product's matrices, and how to multiply them.
Part = tuple[GemmShape, Method]
PartsAsked = tuple["Multiplication", Sequence[Part]]


@dataclass(frozen=True)
class Multiplication:
    """One product: its dimensions, the type of A, and the operand that is packed ahead.
    `warm_ups`: runs of each method before it is timed, None: as many as caches need."""

    shape: GemmShape
    dtype: str = "f32"
    packed: Packed = "none"
    threads: int = 1
    warm_ups: int | None = None


class ProductTimer:
    """Cycles of products on a board's core; compiles the kernels once."""

    def __init__(
        self, target: SimulatedCore, seconds: float = 3600.0, programs: Programs | None = None
    ) -> None:
        """See `RunnerCalls`."""
        self._calls = RunnerCalls(target, seconds, programs)

    def costs(
        self, product: Multiplication, methods: Sequence[Method]
    ) -> tuple[SimulatedCost, ...]:
        """The cost of each method with warm caches and predictors. InputError if a run fails."""
        return product_costs(self._calls, product, methods)

    def part_costs(self, asked: Sequence[PartsAsked]) -> list[tuple[SimulatedCost, ...]]:
        """Likewise, of parts of each product."""
        return _costs(self._calls, asked)


def product_costs(
    calls: RunnerCalls, product: Multiplication, methods: Sequence[Method]
) -> tuple[SimulatedCost, ...]:
    """The cost of each method with warm caches and predictors. InputError if a run fails."""
    return _costs(calls, [(product, [(product.shape, how) for how in methods])])[0]


def _costs(calls: RunnerCalls, asked: Sequence[PartsAsked]) -> list[tuple[SimulatedCost, ...]]:
    """Each run has products of one kind, and the parts of a product are in one if they fit."""
    found: list[SimulatedCost] = []
    for run in _runs_of(asked):
        product, _ = run[0]
        shape = product.shape
        sizes = (_DTYPES.index(product.dtype), shape.m, shape.n, shape.k)
        words = (*sizes, _SIDES[product.packed], product.threads, *_runner_words(run))
        count = sum(len(parts) for _, parts in run)
        costs, _ = calls.run(RunnerCommand("product", words, count, "products"))
        found += costs
    rest = iter(found)
    return [tuple(itertools.islice(rest, len(parts))) for _, parts in asked]


def _runs_of(asked: Sequence[PartsAsked]) -> Iterator[list[PartsAsked]]:
    run: list[PartsAsked] = []
    for product, parts in asked:
        for at in range(0, len(parts), _MOST_METHODS):
            some = parts[at : at + _MOST_METHODS]
            count = sum(len(others) for _, others in run)
            if run and (count + len(some) > _MOST_METHODS or _kind(run[0][0]) != _kind(product)):
                yield run
                run = []
            run.append((product, some))
    if run:
        yield run


def _kind(product: Multiplication) -> tuple[object, ...]:
    return product.dtype, product.packed, product.threads, product.warm_ups is None


def _runner_words(run: Sequence[PartsAsked]) -> Iterator[str]:
    """Methods, each after the product or the part that it computes where that changes."""
    whole = last = run[0][0].shape
    warm_ups = None
    for product, parts in run:
        if product.warm_ups != warm_ups:
            warm_ups = product.warm_ups
            yield f"*{warm_ups}"
        if product.shape != whole:
            whole = last = product.shape
            yield f"={_sizes(whole)}"
        for shape, how in parts:
            if shape != last:
                last = shape
                yield f"@{_sizes(shape)}"
            yield method_text(how)


def _sizes(shape: GemmShape) -> str:
    return f"{shape.m},{shape.n},{shape.k}"


def method_text(how: Method) -> str:
    """The method in the runner's syntax."""
    packs = (int(how.pack_a), int(how.pack_b), _SPLITS.index(how.split))
    return ",".join(map(str, (how.mc, how.kc, how.nc, how.mr, how.nr, *packs)))


@dataclass(frozen=True)
class SplitEstimate:
    """The cost of each path, and what the first computed and reported."""

    costs: tuple[SimulatedCost, ...]
    report: OutlierReport
    y: Any


def outlier_costs(
    calls: RunnerCalls,
    table: KnowledgeBase,
    x: Any,
    values: Any,
    scale: Any,
    threshold: int,
    threads: int,
    paths: Sequence[str],
) -> SplitEstimate:
    """Multiplies x [m, k] f32 by s8 values [k, n] times scale [n] on each path, with warm caches.
    InputError if the run fails."""
    (m, k), n = x.shape, values.shape[1]
    padded = np.zeros(round_up(n, OUTLIER_PADDING), np.float32)
    padded[:n] = scale
    files = {name: a.tobytes() for name, a in (("x", x), ("w", values), ("scale", padded))}
    files["table"] = table_blob(table, calls.target.board.platform)
    words = (m, k, n, threads, threshold)
    numbers = (PATHS.index(path) for path in paths)
    call = RunnerCommand(
        "outlier", (*words, *numbers), len(paths), "paths", files, ("report", "costs", "y")
    )
    costs, results = calls.run(call)
    path, outliers, used = (int(value) for value in np.frombuffer(results["report"], "<i8"))
    split, dense = (float(value) for value in np.frombuffer(results["costs"], "<f8"))
    report = OutlierReport(PATHS[path], outliers, used, 0, 0, 0, 0, 0, split, dense)
    y = np.frombuffer(results["y"], "<f4").reshape(m, n)
    return SplitEstimate(costs, report, y)

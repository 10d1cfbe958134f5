"""Estimates matrix products on a core that we do not have, for each method of the GEMM library
and for each path of the outlier split."""

from __future__ import annotations

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

_DTYPES = ("f32", "s8", "u8")  # ek_gemm_dtype; of A
_SIDES = {"none": -1, "a": 0, "b": 1}
_SPLITS = ("m", "n")
_MOST_METHODS = 100  # per run

# The first rows and columns of a product's matrices, and how to multiply them.
Part = tuple[GemmShape, Method]


@dataclass(frozen=True)
class Multiplication:
    """One product: its dimensions, the type of A, and the operand that is packed ahead."""

    shape: GemmShape
    dtype: str = "f32"
    packed: Packed = "none"
    threads: int = 1


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

    def part_costs(
        self, product: Multiplication, parts: Sequence[Part]
    ) -> tuple[SimulatedCost, ...]:
        """Likewise, of parts of a product."""
        return _costs(self._calls, product, parts)


def product_costs(
    calls: RunnerCalls, product: Multiplication, methods: Sequence[Method]
) -> tuple[SimulatedCost, ...]:
    """The cost of each method with warm caches and predictors. InputError if a run fails."""
    return _costs(calls, product, [(product.shape, how) for how in methods])


def _costs(
    calls: RunnerCalls, product: Multiplication, parts: Sequence[Part]
) -> tuple[SimulatedCost, ...]:
    shape = product.shape
    sizes = (_DTYPES.index(product.dtype), shape.m, shape.n, shape.k)
    numbers = (*sizes, _SIDES[product.packed], product.threads)
    found: list[SimulatedCost] = []
    for at in range(0, len(parts), _MOST_METHODS):
        some = parts[at : at + _MOST_METHODS]
        words = _runner_words(shape, some)
        costs, _ = calls.run(RunnerCommand("product", (*numbers, *words), len(some), "products"))
        found += costs
    return tuple(found)


def _runner_words(whole: GemmShape, parts: Sequence[Part]) -> Iterator[str]:
    """Methods, each after the part that it computes where that changes."""
    for shape, how in parts:
        if shape != whole:
            yield f"@{shape.m},{shape.n},{shape.k}"
            whole = shape
        yield method_text(how)


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

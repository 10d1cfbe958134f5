"""Benchmarks the outlier split against dynamic int8, floats and frameworks."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgekit.device.runtime.arrays.find import find_library
from edgekit.host.lab.bench.gemm import geometric_mean, worker_variables
from edgekit.host.lab.bench.machine import machine_summary
from edgekit.host.lab.bench.outlier_contenders import BITSANDBYTES, FLOATS, INT8, OPERATORS, OURS
from edgekit.host.lab.bench.peers import usable_cores
from edgekit.host.lab.bench.process import AnsweringProcess
from edgekit.kb.features import GemmShape

SCHEMA = "edgekit.bench.outlier/1"
_ROWS = (1, 8, 32, 128, 512)
_WEIGHTS = ((384, 384), (384, 1536), (1536, 384), (1024, 4096), (4096, 1024), (4096, 4096))
_DEADLINE_S = 600.0  # for one product with all peers, on a slow machine


@dataclass(frozen=True)
class Bar:
    """A performance bar: the fastest of `others` over our time must be at least `least`."""

    name: str
    others: tuple[str, ...]
    least: float


BARS = (
    Bar("plain dynamic int8", INT8, 1 / 1.25),
    Bar("operators of PyTorch", OPERATORS[:1], 2.0),
    Bar("operators of NumPy", OPERATORS[1:], 1.0),
    Bar(BITSANDBYTES, (BITSANDBYTES,), 5.0),
    Bar("best f32 product", FLOATS, 1.0),
)


@dataclass(frozen=True)
class Cell:
    """One product. costs and errors (relative, Frobenius) by contender, with costs also for the
    bare int8 product; ratios: for each bar, its fastest contender's time over ours, median over
    rounds. bytes: our working memory."""

    shape: GemmShape
    path: str
    reason: str
    outliers: int
    bytes: int
    costs: dict[str, float]
    errors: dict[str, float]
    missing: dict[str, str]
    ratios: dict[str, float]


@dataclass(frozen=True)
class BarResult:
    """Summary of all cells in which a contender of the bar ran."""

    bar: Bar
    cells: int
    mean: float
    worst: float
    worst_shape: GemmShape

    @property
    def held(self) -> bool:
        """Whether every cell meets the bar."""
        return self.worst >= self.bar.least


@dataclass(frozen=True)
class OutlierBenchmark:
    """`unit` of all costs: seconds or instructions."""

    machine: str
    threads: int
    cells: tuple[Cell, ...]
    versions: dict[str, str]
    missing: dict[str, str]
    unit: str = "seconds"

    @property
    def bars(self) -> tuple[BarResult, ...]:
        return tuple(found for bar in BARS if (found := _bar_result(bar, self.cells)))

    def document(self) -> dict[str, Any]:
        """Ratios above 1 mean that ours is faster."""
        return {
            "schema": SCHEMA,
            "machine": self.machine,
            "threads": self.threads,
            "unit": self.unit,
            "versions": self.versions,
            "missing": self.missing,
            "cells": [_cell_document(cell) for cell in self.cells],
            "bars": [_bar_document(found) for found in self.bars],
        }


def standard_shapes() -> list[GemmShape]:
    """m from 1 to 512; k and n from 384 to 4096."""
    return [GemmShape(m=m, k=k, n=n) for k, n in _WEIGHTS for m in _ROWS]


def bench_outlier(
    shapes: Sequence[GemmShape], threads: int, peers: bool, on_cell: Callable[[int, int], None]
) -> OutlierBenchmark:
    """Times every shape on this machine with all contenders alternately. InputError if there are
    fewer than `threads` cores, or our own library fails."""
    find_library()  # built now if needed, not within the worker's deadline
    settings = {"threads": threads, "cpus": list(usable_cores(threads)), "peers": peers}
    process = AnsweringProcess(
        "the comparison of outlier splits",
        [sys.executable, "-m", "edgekit.host.lab.bench.outlier_worker", json.dumps(settings)],
        _DEADLINE_S,
        worker_variables(threads),
    )
    cells = []
    try:
        for i, shape in enumerate(shapes):
            cells.append(cell_of(shape, _in_seconds(process.ask(asdict(shape)))))
            on_cell(i + 1, len(shapes))
        hello = process.hello
    finally:
        process.close()
    return OutlierBenchmark(
        machine_summary(), threads, tuple(cells), hello["versions"], hello["missing"]
    )


def _in_seconds(answer: dict[str, Any]) -> dict[str, Any]:
    times = {name: [1e-9 * ns for ns in found] for name, found in answer["times"].items()}
    return {**answer, "times": times}


def cell_of(shape: GemmShape, answer: dict[str, Any]) -> Cell:
    """The cell of an answer with the costs of each contender, in rounds, as `times`."""
    times: dict[str, list[float]] = answer["times"]
    costs = {name: statistics.median(found) for name, found in times.items()}
    ratios = {}
    for bar in BARS:
        fastest = min((n for n in bar.others if n in times), key=costs.__getitem__, default=None)
        if fastest is not None:
            pairs = zip(times[fastest], times[OURS], strict=True)
            ratios[bar.name] = statistics.median(theirs / own for theirs, own in pairs)
    return Cell(
        *(shape, answer["path"], answer["reason"], answer["outliers"], answer["bytes"]),
        *(costs, answer["errors"], answer["missing"], ratios),
    )


def _bar_result(bar: Bar, cells: Sequence[Cell]) -> BarResult | None:
    there = [cell for cell in cells if bar.name in cell.ratios]
    if not there:
        return None
    worst = min(there, key=lambda cell: cell.ratios[bar.name])
    mean = geometric_mean(cell.ratios[bar.name] for cell in there)
    return BarResult(bar, len(there), mean, worst.ratios[bar.name], worst.shape)


def _cell_document(cell: Cell) -> dict[str, Any]:
    fields = asdict(cell)
    return {**fields.pop("shape"), **fields}


def _bar_document(found: BarResult) -> dict[str, Any]:
    return {
        "name": found.bar.name,
        "against": list(found.bar.others),
        "least": found.bar.least,
        "cells": found.cells,
        "mean": found.mean,
        "worst": found.worst,
        "worst_shape": asdict(found.worst_shape),
        "held": found.held,
    }

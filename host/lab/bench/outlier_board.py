"""Products with outlier channels on a board, by time, by instructions or by estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from edgekit.device.runtime.arrays.outlier import THRESHOLD, explain_path
from edgekit.device.runtime.arrays.outlier_library import Options, OutlierReport
from edgekit.host.common.decode import fitting
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.deploy.release.product_answers import OutlierAnswer
from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.host.lab.bench.outlier import Cell, OutlierBenchmark, cell_of
from edgekit.host.lab.bench.outlier_contenders import FLOATS, INT8, OURS, OutlierLayer
from edgekit.host.lab.bench.outlier_worker import layer_of
from edgekit.host.lab.tune.board_kernels import BoardKernels, median_cost
from edgekit.host.simulator.products import Multiplication, outlier_costs, product_costs
from edgekit.host.simulator.target import SimulatedCore
from edgekit.host.simulator.timed import RunnerCalls
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile

_PATHS = ("auto", "int8")  # of the split; the float product is its own
_SECONDS = 1.0  # to measure one product


class OutlierMeasurer(Protocol):
    """Measures products on a board. `unit`: "seconds" or "instructions"."""

    @property
    def board(self) -> BoardProfile: ...

    @property
    def unit(self) -> str: ...

    def measure(
        self, layer: OutlierLayer, dense: Method, threads: int
    ) -> tuple[OutlierReport, float, Sequence[float]]:
        """What the split reports, its relative error, and the costs of `_PATHS` and of the float
        product by the method `dense`."""


def bench_measured(
    measurer: OutlierMeasurer,
    shapes: Sequence[GemmShape],
    threads: int,
    on_cell: Callable[[int, int], None],
) -> OutlierBenchmark:
    """Measures every shape. Raises what the measurer raises."""
    table, cells = table_of(measurer.board), []
    for i, shape in enumerate(shapes):
        layer = layer_of(shape.m, shape.k, shape.n)
        dense = table.choose(measurer.board, shape, "f32", threads, "none").method
        report, error, costs = measurer.measure(layer, dense, threads)
        cells.append(_cell(shape, report, error, costs))
        on_cell(i + 1, len(shapes))
    name = measurer.board.name
    return OutlierBenchmark(name, threads, tuple(cells), {}, {}, measurer.unit)


def _cell(shape: GemmShape, report: OutlierReport, error: float, costs: Sequence[float]) -> Cell:
    answer = {
        "times": {name: [cost] for name, cost in zip(_NAMES, costs, strict=True)},
        "errors": {OURS: error},
        "missing": {},
        "outliers": report.outliers,
        "path": report.path,
        "reason": explain_path(report, Options(THRESHOLD), shape.k),
        "bytes": report.bytes,
    }
    return cell_of(shape, answer)


_NAMES = (OURS, INT8[0], FLOATS[0])


class EstimatedOutlier:
    """Estimates for a core that we do not have."""

    unit = "seconds"

    def __init__(self, target: SimulatedCore) -> None:
        """InputError if there is no emulator."""
        self.board = target.board
        self._calls, self._table = RunnerCalls(target), table_of(target.board)

    def measure(
        self, layer: OutlierLayer, dense: Method, threads: int
    ) -> tuple[OutlierReport, float, Sequence[float]]:
        operands = layer.x, layer.values, layer.scale
        found = outlier_costs(self._calls, self._table, *operands, int(THRESHOLD), threads, _PATHS)
        (m, k), n = layer.x.shape, layer.values.shape[1]
        product = Multiplication(GemmShape(m, k, n), "f32", "none", threads)
        costs = (*found.costs, *product_costs(self._calls, product, (dense,)))
        seconds = [self._calls.target.milliseconds(cost.cycles) / 1e3 for cost in costs]
        exact = _exact(layer)
        error = float(np.linalg.norm(found.y - exact) / np.linalg.norm(exact))
        return found.report, error, seconds


class BoardOutlier:
    """Interleaved times on a board, or instruction counts of an emulated one."""

    def __init__(self, device: BoardCalls, board: BoardProfile, emulated: bool) -> None:
        self.board = board
        self._kernels = BoardKernels(device, board, emulated)
        self.unit = self._kernels.unit

    def measure(
        self, layer: OutlierLayer, dense: Method, threads: int
    ) -> tuple[OutlierReport, float, Sequence[float]]:
        exact = _exact(layer).astype(np.float32)
        operands = {"x": layer.x, "values": layer.values, "scale": layer.scale, "y": exact}
        request: dict[str, Any] = {
            "paths": _PATHS,
            "dense": asdict(dense),
            "threshold": THRESHOLD,
            "threads": threads,
        }
        answer = self._kernels.measure("outlier-bench", operands, request, _SECONDS)
        found = fitting(answer, OutlierAnswer)
        costs = [median_cost(found["paths"][path]) for path in _PATHS]
        return (
            OutlierReport(**found["report"]),
            found["relative_error"],
            [*costs, median_cost(found["dense"])],
        )


def _exact(layer: OutlierLayer) -> Any:
    return layer.x.astype(np.float64) @ layer.weights.astype(np.float64)

"""Estimates products with the outlier split on a core that we do not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.device.runtime.arrays.outlier_library import PATHS, OutlierReport
from edgekit.device.runtime.kernel_facts import OUTLIER_PADDING
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.toolchain.gemm_blob import table_blob
from edgekit.host.simulator.run import SimulatedCost
from edgekit.host.simulator.timed import RunnerCalls, RunnerCommand


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

"""Estimates products with the outlier split on a core that we do not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgekit.device.runtime.arrays.outlier_library import (
    PATHS,
    USUAL_ROWS,
    Report,
    packed_tile,
    product_rows,
)
from edgekit.device.runtime.kernel_facts import OUTLIER_PADDING
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.simulator.products import method_text
from edgekit.host.simulator.run import Cost
from edgekit.host.simulator.timed import Call, RunnerCalls
from edgekit.kb.features import GemmShape

_DTYPE = "s8"  # of X1 on every core that has a model of time


@dataclass(frozen=True)
class SplitEstimate:
    """The cost of each path, and what the first computed and reported."""

    costs: tuple[Cost, ...]
    report: Report
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
    board = calls.target.board
    heights = {nv * board.isa.vl: mr for nv, mr in enumerate(board.isa.columns.of(_DTYPE), 1)}
    usual, own = (
        table.choose(board, GemmShape(rows, k, n), _DTYPE, count, "b").method
        for rows, count in ((USUAL_ROWS, 1), (m, threads))
    )
    mr, nr = packed_tile(usual.nr, n, heights)
    packing = replace(usual, mr=mr, nr=nr, pack_a=False)
    how = replace(own, mr=product_rows(own.mr, own.nr, nr, heights), nr=nr, pack_a=False)
    padded = np.zeros(round_up(n, OUTLIER_PADDING), np.float32)
    padded[:n] = scale
    files = {name: a.tobytes() for name, a in (("x", x), ("w", values), ("scale", padded))}
    words = (m, k, n, threads, threshold, method_text(packing), method_text(how))
    numbers = (PATHS.index(path) for path in paths)
    call = Call("outlier", (*words, *numbers), len(paths), "paths", files, ("report", "y"))
    costs, results = calls.run(call)
    path, outliers, used, split, dense = (
        int(value) for value in np.frombuffer(results["report"], "<i8")
    )
    report = Report(PATHS[path], outliers, used, 0, 0, 0, 0, 0, float(split), float(dense))
    y = np.frombuffer(results["y"], "<f4").reshape(m, n)
    return SplitEstimate(costs, report, y)

"""Estimates products with the outlier split on a core that we do not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgekit.device.runtime.arrays.outlier_library import PATHS, Report
from edgekit.device.runtime.kernel_facts import OUTLIER_PADDING
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.simulator.products import method_text
from edgekit.host.simulator.run import Cost
from edgekit.host.simulator.timed import Call, RunnerCalls
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile

_DTYPE = "s8"  # of X1 on every core that has a model of time
_USUAL_ROWS = 128  # that W is packed for


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
    packing, how = _methods(board, table, GemmShape(m, k, n), threads)
    padded = np.zeros(round_up(n, OUTLIER_PADDING), np.float32)
    padded[:n] = scale
    files = {name: a.tobytes() for name, a in (("x", x), ("w", values), ("scale", padded))}
    words = (m, k, n, threads, threshold, method_text(packing), method_text(how))
    numbers = (PATHS.index(path) for path in paths)
    call = Call("outlier", (*words, *numbers), len(paths), "paths", files, ("report", "costs", "y"))
    costs, results = calls.run(call)
    path, outliers, used = (int(value) for value in np.frombuffer(results["report"], "<i8"))
    split, dense = (float(value) for value in np.frombuffer(results["costs"], "<f8"))
    report = Report(PATHS[path], outliers, used, 0, 0, 0, 0, 0, split, dense)
    y = np.frombuffer(results["y"], "<f4").reshape(m, n)
    return SplitEstimate(costs, report, y)


def _methods(
    board: BoardProfile, table: KnowledgeBase, shape: GemmShape, threads: int
) -> tuple[Method, Method]:
    """The methods that `OutlierLibrary` packs W for and multiplies with: regular tiles, since only
    these serve every number of rows."""
    heights = {nv * board.isa.vl: mr for nv, mr in enumerate(board.isa.columns.of(_DTYPE), 1)}
    usual, own = (
        table.choose(board, GemmShape(rows, shape.k, shape.n), _DTYPE, count, "b").method
        for rows, count in ((_USUAL_ROWS, 1), (shape.m, threads))
    )
    narrowest, nr = min(heights), usual.nr
    if nr not in heights:
        nr = min(3 * narrowest, round_up(shape.n, narrowest))
    nr = max(width for width in heights if width <= max(nr, narrowest))
    mr = min(own.mr if own.nr == nr else heights[nr], heights[nr])
    packing = replace(usual, mr=heights[nr], nr=nr, pack_a=False)
    return packing, replace(own, mr=mr, nr=nr, pack_a=False)

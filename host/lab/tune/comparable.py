"""Measurements of products whose ratios are to what the analytic rule chooses today."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from edgekit.host.compiler.costs.methods.gemm import analytic_method
from edgekit.host.lab.history.measurement import Measurement
from edgekit.kb.targets.board import BoardProfile


def comparable(history: Iterable[Measurement], board: BoardProfile) -> list[Measurement]:
    """The measurements without those of a tuner's runs that compared methods with another default.

    A run also has the cost of its default; one without it is taken as it is.
    """
    runs: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for m in history:
        kind = m.board, m.unit, m.kit_version, m.source, m.cpu
        runs[*kind, m.shape, m.dtype, m.threads, m.packed, m.default_cost].append(m)
    return [m for run in runs.values() if _is_comparable(run, board) for m in run]


def _is_comparable(run: list[Measurement], board: BoardProfile) -> bool:
    m, defaults = run[0], {m.method for m in run if m.cost == m.default_cost}
    if m.source != "tuner" or not defaults:
        return True
    return analytic_method(board, m.shape, m.dtype, m.threads, m.packed).cut(m.shape) in defaults

"""Finds the best storage for a class of sparse matrices on a board, one setting at a time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from edgekit.device.runtime.arrays.sparse import WORTH_THREADS
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings, default_settings
from edgekit.device.runtime.arrays.sparse_input import Csr, library
from edgekit.device.runtime.arrays.sparse_library import VALUE_BYTES
from edgekit.device.runtime.arrays.sparse_table import SparseChoice, SpmvRow, key_of
from edgekit.host.compiler.lowering.sparse.strips import strip_height
from edgekit.host.compiler.tables.spmv import spmv_table_of
from edgekit.host.lab.tune.spmv_board import BoardResult
from edgekit.kb.targets.board import BoardProfile

_WINDOWS = (0, 512, 4096, 65536)
_WIDE = (0, 1, 64)
_WIDTHS = (8, 64)
_COLUMNS = (0, 1 << 17, 1 << 18)  # per part; x then fills half or all of a common L2
_BETTER = 0.97  # of the best time so far; smaller gains are noise
_HARMED = 1.03  # ratio to the rule above which a matrix is harmed
_DIGITS = 4


class FormMeasurer(Protocol):
    """Measures a matrix in several formats, on a board or by estimate. `unit`: "seconds" or
    "instructions"."""

    @property
    def unit(self) -> str: ...

    def send(self, matrix: Csr) -> None: ...

    def measure(
        self, settings: Sequence[BlockSettings], threads: int = 1, seconds: float = 1.0
    ) -> BoardResult: ...

    def forget(self) -> None: ...


@dataclass(frozen=True)
class TunedMatrix:
    """The row for one matrix; `rule`: its settings without the row; `tried`: number measured."""

    row: SpmvRow
    rule: BlockSettings
    tried: int


def settings_for(board: BoardProfile, matrix: Csr) -> SparseChoice:
    """The settings for a matrix from the board's table, else from the patent's rule."""
    found = library().features(matrix.rows())
    height = strip_height(board.isa, found.stored)
    rule = default_settings(found.mean, height, VALUE_BYTES[found.stored])
    return spmv_table_of(board).lookup(found, rule)


def tune_matrix(
    measurer: FormMeasurer,
    board: BoardProfile,
    name: str,
    matrix: Csr,
    threads: int = 1,
    seconds: float = 1.0,
    show: Callable[[str], None] = lambda _: None,
) -> TunedMatrix:
    """Tries settings other than the rule's, dimension by dimension, each alternating with the best
    so far. Raises what the measurer raises."""
    measurer.send(matrix)
    try:
        found = library().features(matrix.rows())
        height = strip_height(board.isa, found.stored)
        rule = best = default_settings(found.mean, height, VALUE_BYTES[found.stored])
        tried = 0
        for step in _search_steps(rule, measurer.unit, found.cols):
            candidates = [how for how in (step(best, value) for value in step.values)
                          if how != best]  # fmt: skip
            if not candidates:
                continue
            best = _choose_settings(measurer.measure([*candidates, best], threads, seconds), best)
            tried += len(candidates)
            show(f"{name}: {step.name}: {len(candidates)} tried")
        last = measurer.measure([best, rule], threads, seconds)
    finally:
        measurer.forget()
    ratio = _rounded(last.forms[0].median / last.forms[1].median)
    better = best != rule and ratio < _BETTER
    row = SpmvRow(key_of(found), None, name, 1.0)
    if better:
        by_rule = best.width == rule.width
        row = replace(row, settings=best, ratio=ratio, by_rule=by_rule)
    return TunedMatrix(row, rule, tried)


@dataclass(frozen=True)
class SharedMatrix:
    """One of several matrices whose features have the same key, as it was tuned by `measurer`."""

    measurer: FormMeasurer
    matrix: Csr
    tuned: TunedMatrix


def shared_row(found: Sequence[SharedMatrix], counts: Sequence[int] = (1,)) -> SpmvRow:
    """The row of matrices with the same key, for these counts of threads, small ones for the first:
    of their settings those with the least geometric mean of ratios to the rule's, if they gain and
    harm none. Raises what the measurers raise."""
    best = SpmvRow(found[0].tuned.row.key, None, found[0].tuned.row.matrix, 1.0)
    for row in (each.tuned.row for each in found):
        if row.settings is None:
            continue
        ratios = [
            _ratio_to_rule(each, row.settings_for(each.tuned.rule), threads)
            for each in found
            for threads in counts
            if threads == counts[0] or len(each.matrix.data) >= WORTH_THREADS
        ]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        if mean < min(best.ratio, _BETTER) and max(ratios) < _HARMED:
            best = replace(row, ratio=_rounded(mean))
    return best


def _ratio_to_rule(of: SharedMatrix, how: BlockSettings, threads: int) -> float:
    of.measurer.send(of.matrix)
    tried, rule = of.measurer.measure([how, of.tuned.rule], threads).forms
    return tried.median / rule.median


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.{_DIGITS}g}")


@dataclass(frozen=True)
class _Step:
    """One dimension of the settings, and the values to try."""

    name: str
    values: tuple[int, ...]

    def __call__(self, how: BlockSettings, value: int) -> BlockSettings:
        given: dict[str, Any] = {self.name: value}
        if self.name in ("diagonal", "windows"):
            given = {self.name: bool(value)}
        return replace(how, **given)


def _search_steps(rule: BlockSettings, unit: str, cols: int) -> Iterator[_Step]:
    yield _Step("diagonal", (0, 1))
    yield _Step("windows", (0, 1))
    yield _Step("window", _WINDOWS)
    yield _Step("wide_from", _WIDE)
    if unit == "seconds":  # instruction counts do not reflect memory traffic and caches
        yield _Step("columns", tuple(n for n in _COLUMNS if n < cols))
        yield _Step("index_bytes", (0, 2, 4))
    yield _Step("width", (rule.width, *_WIDTHS))


def _choose_settings(found: BoardResult, best: BlockSettings) -> BlockSettings:
    *others, known = found.forms
    fastest = min(others, key=lambda form: form.median, default=known)
    return fastest.settings if fastest.median < _BETTER * known.median else best

"""Finds how to store a class of sparse matrices on a board: settings are tried one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from edgekit.device.sparse_blocks import BlockSettings, default_settings
from edgekit.device.sparse_input import DTYPES, Csr
from edgekit.device.sparse_library import VALUE_BYTES
from edgekit.device.sparse_table import Row, key_of
from edgekit.host.tune.spmv_board import BoardResult, SpmvMeasurer

_WINDOWS = (0, 512, 4096, 65536)
_WIDE = (0, 1, 64)
_WIDTHS = (8, 64)
_BETTER = 0.97  # of the time so far: less is noise
_DIGITS = 4


@dataclass(frozen=True)
class TunedMatrix:
    """The row for one matrix; `tried` settings were measured."""

    row: Row
    tried: int


def rule_settings(matrix: Csr, height: int) -> BlockSettings:
    """The patent's rule for a matrix on a board whose strips have `height` rows."""
    mean = len(matrix.data) / max(matrix.shape[0], 1)
    return default_settings(mean, height, VALUE_BYTES[DTYPES[matrix.data.dtype.name]])


def tune_matrix(
    measurer: SpmvMeasurer,
    name: str,
    matrix: Csr,
    threads: int = 1,
    seconds: float = 1.0,
    show: Callable[[str], None] = lambda _: None,
) -> TunedMatrix:
    """Tries other settings than the rule's, dimension by dimension, each in turns with the best so
    far. Raises what the measurer raises."""
    measurer.send(matrix)
    try:
        first = measurer.measure([BlockSettings(1)], threads, seconds)
        rule = best = rule_settings(matrix, first.height)
        tried = 0
        for step in _steps(rule):
            candidates = [how for how in (step(best, value) for value in step.values)
                          if how != best]  # fmt: skip
            found = measurer.measure([*candidates, best], threads, seconds)
            tried += len(candidates)
            best = _choose(found, best)
            show(f"{name}: {step.name}: {len(candidates)} tried")
        last = measurer.measure([best, rule], threads, seconds)
    finally:
        measurer.forget()
    ratio = last.forms[0].median / last.forms[1].median
    if ratio >= 1:
        best, ratio = rule, 1.0
    rounded = float(f"{ratio:.{_DIGITS}g}")
    return TunedMatrix(Row(key_of(last.features), best, name, rounded), tried)


@dataclass(frozen=True)
class _Step:
    """One dimension of the settings and the values to try."""

    name: str
    values: tuple[int, ...]

    def __call__(self, how: BlockSettings, value: int) -> BlockSettings:
        if self.name == "diagonal":
            return replace(how, diagonal=bool(value))
        return replace(how, **{self.name: value})  # type: ignore[arg-type]


def _steps(rule: BlockSettings) -> Iterator[_Step]:
    yield _Step("diagonal", (0, 1))
    yield _Step("window", _WINDOWS)
    yield _Step("wide_from", _WIDE)
    yield _Step("index_bytes", (0, 2, 4))
    yield _Step("width", (rule.width, *_WIDTHS))


def _choose(found: BoardResult, best: BlockSettings) -> BlockSettings:
    *others, known = found.forms
    fastest = min(others, key=lambda form: form.median, default=known)
    return fastest.settings if fastest.median < _BETTER * known.median else best

"""History → table: for each key the method with the best robust cost."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.kb.board import BoardProfile
from edgekit.kb.features import GemmKey, GemmShape, Sequences, key_of
from edgekit.kb.gemm_table import KnowledgeBase, Row
from edgekit.kb.measurement import Measurement
from edgekit.kb.method import Method, analytic_method, limits_of

_WORTH = 0.98  # of the default's cost: what is no better leaves the product to the analytic rule
_DIGITS = 4  # of ratios and rates in the table: the rest is noise


def build_table(
    history: Iterable[Measurement],
    platforms: Sequence[str] = (),
    sequences: Sequences | None = None,
    base: KnowledgeBase | None = None,
    board: BoardProfile | None = None,
) -> KnowledgeBase:
    """The table of a history; `platforms` are the ones known before, which keep their index.

    A method's cost is the median of its ratios to the default of the same run, over all products
    of a key, each product counting once; where there are times, counted instructions do not
    matter. Rows of `base` stay where the history says nothing of their key. With the `board` that
    was measured, blocks become limits for other products (`limits_of`). The result depends on the
    set of measurements only, not on their order.
    """
    used = sequences or (base.sequences if base else Sequences())
    rows = sorted(history, key=_order)
    known = [*(base.platforms if base else ())]
    for name in (*platforms, *sorted({m.platform for m in rows})):
        if name not in known:
            known.append(name)
    groups: dict[GemmKey, list[Measurement]] = defaultdict(list)
    for m in rows:
        key = key_of(m.shape, known.index(m.platform), used, m.dtype, m.threads, m.packed)
        groups[key].append(m)
    best = _kept(base, used) if base else {}
    best |= {key: best_row(key, found, board) for key, found in groups.items()}
    table = KnowledgeBase(tuple(known), used)
    return table.with_rows(best.values())


def _kept(base: KnowledgeBase, used: Sequences) -> dict[GemmKey, Row]:
    """The rows of a table under other sequences; of those that meet, the best ratio stays."""
    rows: dict[GemmKey, Row] = {}
    for row in sorted(base.rows, key=lambda r: (r.ratio is None, r.ratio or 0.0, r.key)):
        old = row.key
        key = key_of(row.shape, old.platform, used, old.dtype, old.threads, old.packed)
        rows.setdefault(key, replace(row, key=key))
    return rows


def _order(m: Measurement) -> tuple[object, ...]:
    kind = (m.platform, m.dtype, m.threads, m.packed)
    return (*kind, m.shape, m.method, m.unit, m.cost, m.when, m.source)


def _method_of(
    choice: _Choice, best: Measurement, used: Sequence[Measurement], board: BoardProfile | None
) -> Method | None:
    """What the row says: nothing if the analytic method, as it is today, is as good."""
    if board is None:
        return choice.method if choice.ratio < _WORTH else None
    b = best
    analytic = analytic_method(board, b.shape, b.dtype, b.threads, b.packed).cut(b.shape)
    same = [m for m in used if m.shape == b.shape and m.method == analytic]
    if same and choice.ratio >= _WORTH * _robust_ratio(same):
        return None
    return limits_of(choice.method, b.shape, board, b.dtype)


@dataclass(frozen=True)
class _Choice:
    method: Method
    ratio: float


def best_row(key: GemmKey, found: Sequence[Measurement], board: BoardProfile | None = None) -> Row:
    """The row of a key from all that was measured of it; see `Row` for what has no method."""
    unit = "seconds" if any(m.unit == "seconds" for m in found) else "instructions"
    used = sorted((m for m in found if m.unit == unit), key=_order)
    choice = _choose(used)
    chosen = [m for m in used if m.method == choice.method]
    best = min(chosen, key=lambda m: (m.ratio, _order(m)))
    timed = unit == "seconds"
    rate = max(m.shape.operations / m.cost / 1e9 for m in chosen) if timed else None
    return Row(
        key,
        _method_of(choice, best, used, board),
        best.shape,
        best.source if timed else unit,
        len(used),
        _rounded(choice.ratio),
        None if rate is None else _rounded(rate),
    )


def _choose(measurements: Sequence[Measurement]) -> _Choice:
    by_method: dict[Method, list[Measurement]] = defaultdict(list)
    for m in measurements:
        by_method[m.method].append(m)
    scores = [_Choice(method, _robust_ratio(ms)) for method, ms in by_method.items()]
    return min(scores, key=lambda each: (each.ratio, each.method))


def _robust_ratio(measurements: Sequence[Measurement]) -> float:
    return statistics.median(ratios_by_shape(measurements).values())


def ratios_by_shape(measurements: Iterable[Measurement]) -> Mapping[GemmShape, float]:
    """Of one method: the median ratio on each product."""
    found: dict[GemmShape, list[float]] = defaultdict(list)
    for m in measurements:
        found[m.shape].append(m.ratio)
    return {shape: statistics.median(ratios) for shape, ratios in found.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")

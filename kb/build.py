"""History → table: for each key the method with the best robust time."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from edgekit.kb.features import GemmKey, Sequences, key_of
from edgekit.kb.gemm_table import KnowledgeBase, Row
from edgekit.kb.measurement import Measurement
from edgekit.kb.method import Method

_DIGITS = 4  # of ratios and rates in the table: the rest is noise


def build_table(
    history: Iterable[Measurement],
    platforms: Sequence[str] = (),
    sequences: Sequences | None = None,
) -> KnowledgeBase:
    """The table of a history; `platforms` are the ones known before, which keep their index.

    A method's time is the median of its ratios to the default of the same run, over all products
    of a key, each product counting once. The result depends on the set of measurements only, not
    on their order.
    """
    used = sequences or Sequences()
    rows = sorted(history, key=_order)
    known = [*platforms]
    for name in sorted({m.platform for m in rows}):
        if name not in known:
            known.append(name)
    groups: dict[GemmKey, list[Measurement]] = defaultdict(list)
    for m in rows:
        key = key_of(m.shape, known.index(m.platform), used, m.dtype, m.threads)
        groups[key].append(m)
    table = KnowledgeBase(tuple(known), used)
    return table.with_rows(_best(key, found) for key, found in groups.items())


def _order(m: Measurement) -> tuple[object, ...]:
    return (m.platform, m.dtype, m.threads, m.shape, m.method, m.seconds, m.when, m.source)


def _best(key: GemmKey, found: Sequence[Measurement]) -> Row:
    by_method: dict[Method, list[Measurement]] = defaultdict(list)
    for m in found:
        by_method[m.method].append(m)
    score = {method: _robust_ratio(ms) for method, ms in by_method.items()}
    method = min(score, key=lambda each: (score[each], each))
    chosen = by_method[method]
    fastest = min(chosen, key=lambda m: (m.ratio, _order(m)))
    timed = [m for m in chosen if m.source != "instructions"]
    rate = max((m.shape.operations / m.seconds / 1e9 for m in timed), default=None)
    return Row(
        key,
        method,
        fastest.shape,
        fastest.source,
        len(found),
        _rounded(score[method]),
        None if rate is None else _rounded(rate),
    )


def _robust_ratio(measurements: Sequence[Measurement]) -> float:
    by_shape: dict[object, list[float]] = defaultdict(list)
    for m in measurements:
        by_shape[m.shape].append(m.ratio)
    return statistics.median(statistics.median(ratios) for ratios in by_shape.values())


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")

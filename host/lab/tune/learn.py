"""Learns key sequences from a history: those with the lowest regret on held-out products."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.tune.build import keys_of
from edgekit.host.lab.tune.method_stats import MeasurementKind, MethodStats, by_kind
from edgekit.kb.features import GemmKey, GemmShape, Sequences, packed_of
from edgekit.kb.targets.board import BoardProfile

_LARGEST = 4096
_FEWEST = 8  # products of one kind needed to learn anything
_GAIN = 0.9  # denser sequences must reduce the regret at least to this fraction


@dataclass(frozen=True)
class Regret:
    """Cost of the table's choice over the best known method's, minus 1, on `shapes` products that
    the table did not know; 0 shapes: no data."""

    mean: float
    worst: float
    shapes: int


def learn_sequences(
    history: Iterable[Measurement], board: BoardProfile | None = None
) -> tuple[Sequences, Regret]:
    """The default sequences, or denser ones if they lower the mean regret by a tenth or more: of
    the products of the history, half of it when they are held out and half when they are known."""
    kinds = by_kind(history, board)
    best = Sequences()
    least = _regret_of_sequences(best, kinds)
    loss = least.mean + _regret_of_sequences(best, kinds, known=True).mean
    for candidate in _candidate_sequences():
        found = _regret_of_sequences(candidate, kinds)
        total = found.mean + _regret_of_sequences(candidate, kinds, known=True).mean
        if found.shapes and total < _GAIN * loss:
            best, least, loss = candidate, found, total
    return best, least


def _candidate_sequences() -> Iterable[Sequences]:
    for ratio in (2.0, math.sqrt(2.0)):
        steps = _geometric_steps(ratio)
        for scales in (Sequences().scale, _geometric_steps(4.0), _geometric_steps(2.0)):
            yield Sequences(m=steps, k=steps, n=steps, scale=scales)


def _geometric_steps(ratio: float) -> tuple[int, ...]:
    """1, 2, ... growing by about `ratio`."""
    count = round(math.log(_LARGEST) / math.log(ratio))
    return tuple(sorted({round(ratio**i) for i in range(count + 1)}))


def regret_of(
    sequences: Sequences, history: Iterable[Measurement], board: BoardProfile | None = None
) -> Regret:
    """Leave-one-out regret: looks up each product in a table built from the others.

    A method not measured on a product is charged the cost of the most similar one that was.
    """
    return _regret_of_sequences(sequences, by_kind(history, board))


def _regret_of_sequences(
    sequences: Sequences, kinds: Mapping[MeasurementKind, MethodStats], known: bool = False
) -> Regret:
    found = [r for kind, each in kinds.items() for r in _regrets(sequences, kind, each, known)]
    if not found:
        return Regret(math.inf, math.inf, 0)
    return Regret(statistics.fmean(found), max(found), len(found))


def _regrets(
    sequences: Sequences, kind: MeasurementKind, known: MethodStats, with_own: bool
) -> Iterable[float]:
    """The regret of each product in a table of all, or of all others."""
    if len(known.products) < _FEWEST:
        return
    groups = keys_of(kind, known.products, sequences, 0)
    rows = {key: known.row(key, shapes) for key, shapes in groups.items()}
    packed = packed_of(kind.packed)
    table = KnowledgeBase((kind.platform,), sequences, rows=tuple(rows.values()))
    for key, shapes in groups.items():
        for shape in shapes:
            if not with_own:
                rest = _rows_without(shape, key, shapes, rows, known)
                table = KnowledgeBase((kind.platform,), sequences, rows=rest)
            answer = table.lookup(
                kind.platform,
                shape,
                known.default(shape),
                kind.dtype,
                kind.threads,
                packed,
                known.vl,
            )
            yield known.ratio(answer.method, shape) / known.least(shape) - 1.0


def _rows_without(
    shape: GemmShape,
    key: GemmKey,
    shapes: list[GemmShape],
    rows: Mapping[GemmKey, GemmRow],
    known: MethodStats,
) -> tuple[GemmRow, ...]:
    """The rows as if the product had not been measured."""
    rest = []
    for other, row in rows.items():
        if other == key:
            if len(shapes) > 1:
                rest.append(known.row(key, [s for s in shapes if s != shape]))
        elif row.method is not None and shape in known.nearest(row.shape):
            relaxes = known.relaxes(row.method, row.shape, without=shape)
            rest.append(replace(row, relaxes=relaxes))
        else:
            rest.append(row)
    return tuple(rest)

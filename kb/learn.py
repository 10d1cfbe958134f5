"""Learns data sequences from a history: those with which products that were left out fare best."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.kb.board import BoardProfile
from edgekit.kb.build import best_row, ratios_by_shape
from edgekit.kb.features import GemmKey, GemmShape, Sequences, key_of
from edgekit.kb.gemm_table import KnowledgeBase, Row
from edgekit.kb.measurement import Measurement
from edgekit.kb.method import Method

_LARGEST = 4096
_FEWEST = 8  # products of one kind, below which nothing can be learned
_GAIN = 0.9  # regret of denser sequences over that of simpler ones, to be worth it


@dataclass(frozen=True)
class Regret:
    """Cost of the table's choice over that of the best method known, less 1, of `shapes` products
    that the table did not know; 0 shapes: nothing to go by."""

    mean: float
    worst: float
    shapes: int


def learn_sequences(history: Sequence[Measurement], board: BoardProfile | None = None) -> Sequences:
    """The default sequences, or denser ones if they lower the mean regret by a tenth or more."""
    best = Sequences()
    least = regret_of(best, history, board)
    for candidate in _candidates():
        found = regret_of(candidate, history, board)
        if found.shapes and found.mean < _GAIN * least.mean:
            best, least = candidate, found
    return best


def _candidates() -> Iterable[Sequences]:
    for ratio in (2.0, math.sqrt(2.0)):
        steps = _geometric(ratio)
        for scales in (Sequences().scale, _geometric(4.0), _geometric(2.0)):
            yield Sequences(m=steps, k=steps, n=steps, scale=scales)


def _geometric(ratio: float) -> tuple[int, ...]:
    """1, 2, ... with about `ratio` from one to the next."""
    count = round(math.log(_LARGEST) / math.log(ratio))
    return tuple(sorted({round(ratio**i) for i in range(count + 1)}))


def regret_of(
    sequences: Sequences, history: Iterable[Measurement], board: BoardProfile | None = None
) -> Regret:
    """Leaves out one product after the other and asks the table of the rest for it.

    A method that was not measured on the product counts as the one that is most like it and was.
    """
    kinds: dict[tuple[str, str, int, str, str], list[Measurement]] = defaultdict(list)
    for m in history:
        kinds[m.platform, m.dtype, m.threads, m.packed, m.unit].append(m)
    found = [r for k in sorted(kinds) for r in _regrets(sequences, _by_shape(kinds[k]), board)]
    if not found:
        return Regret(math.inf, math.inf, 0)
    return Regret(statistics.fmean(found), max(found), len(found))


def _by_shape(history: Iterable[Measurement]) -> dict[GemmShape, list[Measurement]]:
    found: dict[GemmShape, list[Measurement]] = defaultdict(list)
    for m in history:
        found[m.shape].append(m)
    return dict(sorted(found.items()))


def _regrets(
    sequences: Sequences,
    products: Mapping[GemmShape, Sequence[Measurement]],
    board: BoardProfile | None,
) -> Iterable[float]:
    if len(products) < _FEWEST:
        return
    any_one = next(iter(products.values()))[0]
    dtype, threads, platform = any_one.dtype, any_one.threads, any_one.platform
    groups: dict[GemmKey, list[GemmShape]] = defaultdict(list)
    for shape in products:
        groups[key_of(shape, 0, sequences, dtype, threads)].append(shape)

    def row(key: GemmKey, shapes: Sequence[GemmShape]) -> Row:
        found = list(itertools.chain.from_iterable(products[s] for s in shapes))
        return best_row(key, found, board)

    rows = {key: row(key, shapes) for key, shapes in groups.items()}
    for key, shapes in groups.items():
        for shape in shapes:
            others = [s for s in shapes if s != shape]
            rest = {k: r for k, r in rows.items() if k != key}
            if others:
                rest[key] = row(key, others)
            known = _ratios(products[shape])
            default = min(known, key=lambda method: abs(known[method] - 1.0))
            table = KnowledgeBase((platform,), sequences, rows=tuple(rest.values()))
            answer = table.lookup(platform, shape, default, dtype, threads)
            yield _like(answer.method.cut(shape), known) / min(known.values()) - 1.0


def _ratios(measurements: Sequence[Measurement]) -> dict[Method, float]:
    """The ratio of each method on one product."""
    by_method: dict[Method, list[Measurement]] = defaultdict(list)
    for m in measurements:
        by_method[m.method].append(m)
    return {
        method: next(iter(ratios_by_shape(found).values())) for method, found in by_method.items()
    }


def _like(method: Method, known: Mapping[Method, float]) -> float:
    """The ratio of the measured method that is most like `method`."""
    return known[min(known, key=lambda each: (_difference(method, each), each))]


def _difference(a: Method, b: Method) -> float:
    tile = abs(math.log(a.mr / b.mr)) + abs(math.log(a.nr / b.nr))
    blocks = sum(abs(math.log(getattr(a, name) / getattr(b, name))) for name in ("mc", "kc", "nc"))
    flags = (a.pack_a != b.pack_a) + (a.pack_b != b.pack_b) + (a.split != b.split)
    return 10.0 * tile + 5.0 * flags + blocks

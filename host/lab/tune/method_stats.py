"""Statistics of measurements of one kind, and predictions for unmeasured products."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.compiler.costs.methods.limits import limits_of
from edgekit.host.compiler.tables.gemm_table import GemmRow
from edgekit.host.lab.history.measurement import UNITS, Measurement
from edgekit.kb.features import GemmKey, GemmShape
from edgekit.kb.targets.board import BoardProfile

WORTH = 0.98  # ratio to the default above which the analytic rule stays in charge
_NEIGHBORS = 6  # nearest products used to predict whether a method generalizes
_HARMED = 1.05  # ratio to the default above which a neighbor is harmed
_NEAR = 0.3  # squared log distance; farther away, rows of an Intel CPU lost 6 to 17%
_BEST = 4  # best methods of each product that are candidates for its key
_SOURCES = {"cycles": "estimate", "instructions": "instructions"}  # of rows without times
_DIGITS = 3  # of ratios and rates in the table: the rest is noise


@dataclass(frozen=True, order=True)
class MeasurementKind:
    """Comparable measurements: ratios to the default method of one edgekit version, since another
    version may have another default."""

    platform: str
    dtype: str
    threads: int
    packed: str
    unit: str
    kit_version: str

    @property
    def age(self) -> tuple[object, ...]:
        """Sort key that puts the most relevant kinds last: times, newer kits."""
        numbers = tuple(int(part) for part in re.findall(r"\d+", self.kit_version))
        return -UNITS.index(self.unit), numbers, self


def kind_of(m: Measurement) -> MeasurementKind:
    return MeasurementKind(m.platform, m.dtype, m.threads, m.packed, m.unit, m.kit_version)


def by_kind(
    history: Iterable[Measurement], board: BoardProfile | None
) -> dict[MeasurementKind, MethodStats]:
    """The statistics of each kind; independent of the order of the history."""
    found: dict[MeasurementKind, list[Measurement]] = defaultdict(list)
    for m in sorted(history, key=_sort_key):
        found[kind_of(m)].append(m)
    return {kind: MethodStats(found[kind], board) for kind in sorted(found)}


def _sort_key(m: Measurement) -> tuple[object, ...]:
    return (m.shape, m.method, m.cost, m.default_cost, m.when, m.source, m.board)


class MethodStats:
    """Measurements of one kind. Given the `board` they come from, methods are adapted to other
    products (`limits_of`) and compared with the current analytic rule."""

    def __init__(self, measurements: Sequence[Measurement], board: BoardProfile | None) -> None:
        self._board = board
        self.products: dict[GemmShape, list[Measurement]] = defaultdict(list)
        for m in measurements:
            self.products[m.shape].append(m)
        self._known = {shape: _median_ratios(found) for shape, found in self.products.items()}
        self._near: dict[GemmShape, list[GemmShape]] = {}
        self._cost: dict[tuple[Method, GemmShape], float] = {}

    @property
    def vl(self) -> int:
        """The board's vector lanes; 1 without a board, so that no tile counts as transposed."""
        return self._board.isa.vl if self._board else 1

    def row(self, key: GemmKey, shapes: Sequence[GemmShape]) -> GemmRow:
        """The row of a key, from its products `shapes`: the method with the lowest mean ratio;
        see `GemmRow` for keys without a method."""
        used = list(itertools.chain.from_iterable(self.products[shape] for shape in shapes))
        ratio, origin, method = self._best_method(shapes)
        made = self._generalize(method, origin)
        chosen = [m for m in used if m.method in (method, made.cut(m.shape))]
        best = min(chosen, key=lambda m: m.ratio)
        timed = best.unit == "seconds"
        rate = max(m.shape.operations / m.cost / 1e9 for m in chosen) if timed else None
        kept = made if self._is_worth_it(method, origin, shapes) else None
        relaxes = kept is None or self.relaxes(kept, best.shape)
        return GemmRow(
            key,
            kept,
            best.shape,
            best.source if timed else _SOURCES[best.unit],
            len(used),
            _round_digits(ratio),
            None if rate is None else _round_digits(rate),
            relaxes,
            "; ".join(sorted({m.cpu for m in chosen if m.cpu})),
            None if relaxes or self._board is None else _row_radius(best.shape, shapes),
        )

    def _best_method(self, shapes: Sequence[GemmShape]) -> tuple[float, GemmShape, Method]:
        """The method with the lowest geometric mean ratio over a key's products, the product it
        was measured on, and that mean. Averaging keeps a method that is best on one product
        from being used for others on which it is slow."""
        scores = []
        for origin in shapes:
            known = self._known[origin]
            for method in sorted(known, key=lambda each: (known[each], each))[:_BEST]:
                ratios = [self._predicted_ratio(method, origin, shape) for shape in shapes]
                mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
                scores.append((mean, origin, method))
        return min(scores)

    def _predicted_ratio(self, method: Method, origin: GemmShape, shape: GemmShape) -> float:
        """The predicted ratio on `shape` of a method measured on `origin`. A tile that was not
        tried was not promising, so it is charged the worst measured ratio."""
        if shape == origin:
            return self._known[origin][method]
        made = self._generalize(method, origin)
        if self._has_tile(made.cut(shape), shape):
            return self.ratio(made, shape)
        return max(self._known[shape].values())

    def _generalize(self, method: Method, shape: GemmShape) -> Method:
        """The method measured on `shape`, generalized to other products."""
        if self._board is None:
            return method
        return limits_of(method, shape, self._board, self.products[shape][0].dtype)

    def _is_worth_it(self, method: Method, origin: GemmShape, shapes: Sequence[GemmShape]) -> bool:
        """Whether a method beats the current analytic one on those products of a key where that
        was measured; true if there are none."""
        gains = []
        for shape in shapes:
            known = self._known[shape].get(self.default(shape)) if self._board else 1.0
            if known is not None:
                gains.append(math.log(self._predicted_ratio(method, origin, shape) / known))
        return not gains or statistics.fmean(gains) < math.log(WORTH)

    def relaxes(self, method: Method, shape: GemmShape, without: GemmShape | None = None) -> bool:
        """Whether the nearest products would gain from a method over the default, with none of
        them much worse. Judged by those on which its tile was tried, which must be at least
        half: where it was not tried, it was not promising. Methods that were estimated are valid
        near their products only: on an A72 they took 1.02 times as long, at most 1.14, on 41 others
        for which they were valid by this test."""
        if any(m.unit == "cycles" for m in self.products[shape]):
            return False
        near = [s for s in self.nearest(shape) if s != without][:_NEIGHBORS]
        tried = [s for s in near if self._has_tile(method.cut(s), s)]
        gains = [math.log(self.ratio(method, s) / self.ratio(self.default(s), s)) for s in tried]
        if 2 * len(gains) < len(near) or not near:
            return not near
        return statistics.fmean(gains) < math.log(WORTH) and max(gains) < math.log(_HARMED)

    def _has_tile(self, method: Method, shape: GemmShape) -> bool:
        return any((k.mr, k.nr) == (method.mr, method.nr) for k in self._known[shape])

    def nearest(self, shape: GemmShape) -> list[GemmShape]:
        """The nearest other products, one more than needed so that one can be left out."""
        if shape not in self._near:
            others = [s for s in self.products if s != shape]
            others.sort(key=lambda s: (s.log_distance(shape), s))
            self._near[shape] = others[: _NEIGHBORS + 1]
        return self._near[shape]

    def default(self, shape: GemmShape) -> Method:
        """The analytic method of a product; without a board, the one others were compared with."""
        if self._board is None:
            known = self._known[shape]
            return min(known, key=lambda method: (abs(known[method] - 1.0), method))
        m = self.products[shape][0]
        return analytic_method(self._board, shape, m.dtype, m.threads, m.packed).cut(shape)

    def ratio(self, method: Method, shape: GemmShape) -> float:
        """The ratio of a method on a measured product, or of the most similar method tried on
        it."""
        at = method.cut(shape), shape
        if at not in self._cost:
            known = self._known[shape]
            self._cost[at] = known[
                min(known, key=lambda each: (_method_distance(at[0], each), each))
            ]
        return self._cost[at]

    def least(self, shape: GemmShape) -> float:
        """The ratio of the best method tried on a product."""
        return min(self._known[shape].values())


def _row_radius(best: GemmShape, shapes: Sequence[GemmShape]) -> int:
    """The distance up to which a row applies: as far as it was measured, plus what counts as
    near."""
    measured = max(best.log_distance(shape) for shape in shapes)
    return math.ceil(100.0 * (math.sqrt(measured) + math.sqrt(_NEAR)) ** 2)


def _median_ratios(measurements: Sequence[Measurement]) -> Mapping[Method, float]:
    """The ratio of each method on one product: the median over CPUs of each CPU's median, so that
    each CPU counts once, however often it was measured."""
    by_method: dict[Method, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for m in measurements:
        by_method[m.method][m.cpu].append(m.ratio)
    return {
        method: statistics.median(statistics.median(ratios) for ratios in by_cpu.values())
        for method, by_cpu in by_method.items()
    }


def _method_distance(a: Method, b: Method) -> float:
    tile = abs(math.log(a.mr / b.mr)) + abs(math.log(a.nr / b.nr))
    blocks = sum(abs(math.log(getattr(a, name) / getattr(b, name))) for name in ("mc", "kc", "nc"))
    flags = (a.pack_a != b.pack_a) + (a.pack_b != b.pack_b) + (a.split != b.split)
    return 10.0 * tile + 5.0 * flags + blocks


def _round_digits(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")

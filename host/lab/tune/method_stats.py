"""What was measured of one kind of products, and what it says of products that were not."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.lab.history.measurement import Measurement
from edgekit.kb.features import GemmKey, GemmShape
from edgekit.kb.tables.gemm_table import Row
from edgekit.kb.tables.method import Method, analytic_method, limits_of
from edgekit.kb.targets.board import BoardProfile

_WORTH = 0.98  # of the default's cost: what is no better leaves the product to the analytic rule
_NEIGHBORS = 6  # nearest products that a method is tried on in thought
_HARMED = 1.05  # of the default's cost: a neighbor would be much worse off
_NEAR = 0.3  # squared distance of logarithms; farther off, rows of an Intel lost 6 to 17 %
_BEST = 4  # methods of each product of a key that may answer for all of it
_DIGITS = 3  # of ratios and rates in the table: the rest is noise


@dataclass(frozen=True, order=True)
class Kind:
    """Measurements that may be compared: ratios to the default method of one kit version, since
    another version may have another default."""

    platform: str
    dtype: str
    threads: int
    packed: str
    unit: str
    kit_version: str

    @property
    def age(self) -> tuple[object, ...]:
        """Sorts what takes the place of other knowledge last: times, newer kits."""
        numbers = tuple(int(part) for part in re.findall(r"\d+", self.kit_version))
        return self.unit == "seconds", numbers, self


def kind_of(m: Measurement) -> Kind:
    return Kind(m.platform, m.dtype, m.threads, m.packed, m.unit, m.kit_version)


def by_kind(history: Iterable[Measurement], board: BoardProfile | None) -> dict[Kind, Experience]:
    """The experience of each kind, whatever the order of the history."""
    found: dict[Kind, list[Measurement]] = defaultdict(list)
    for m in sorted(history, key=_order):
        found[kind_of(m)].append(m)
    return {kind: Experience(found[kind], board) for kind in sorted(found)}


def _order(m: Measurement) -> tuple[object, ...]:
    return (m.shape, m.method, m.cost, m.default_cost, m.when, m.source, m.board)


class Experience:
    """Measurements of one kind. With the `board` they come from, methods are adapted to other
    products (`limits_of`) and compared with the analytic rule as it is today."""

    def __init__(self, measurements: Sequence[Measurement], board: BoardProfile | None) -> None:
        self._board = board
        self.products: dict[GemmShape, list[Measurement]] = defaultdict(list)
        for m in measurements:
            self.products[m.shape].append(m)
        self._known = {shape: _ratios(found) for shape, found in self.products.items()}
        self._near: dict[GemmShape, list[GemmShape]] = {}
        self._cost: dict[tuple[Method, GemmShape], float] = {}

    @property
    def vl(self) -> int:
        """Lanes of the board's vectors; 1 without a board, where no tile passes for transposed."""
        return self._board.isa.vl if self._board else 1

    def row(self, key: GemmKey, shapes: Sequence[GemmShape]) -> Row:
        """The row of a key from the products of it that are named: the method with the least mean
        of ratios over them; see `Row` for what has no method."""
        used = list(itertools.chain.from_iterable(self.products[shape] for shape in shapes))
        ratio, origin, method = self._choose(shapes)
        made = self._adapted(method, origin)
        chosen = [m for m in used if m.method in (method, made.cut(m.shape))]
        best = min(chosen, key=lambda m: m.ratio)
        timed = best.unit == "seconds"
        rate = max(m.shape.operations / m.cost / 1e9 for m in chosen) if timed else None
        kept = made if self._is_worth_it(method, origin, shapes) else None
        relaxes = kept is None or self.relaxes(kept, best.shape)
        return Row(
            key,
            kept,
            best.shape,
            best.source if timed else best.unit,
            len(used),
            _rounded(ratio),
            None if rate is None else _rounded(rate),
            relaxes,
            "; ".join(sorted({m.cpu for m in chosen if m.cpu})),
            None if relaxes or self._board is None else _radius(best.shape, shapes),
        )

    def _choose(self, shapes: Sequence[GemmShape]) -> tuple[float, GemmShape, Method]:
        """The method with the least geometric mean of ratios over the products of a key, the
        product it was measured on, and that mean. One that is best on a single product must not
        answer for others on which it would be slow."""
        scores = []
        for origin in shapes:
            known = self._known[origin]
            for method in sorted(known, key=lambda each: (known[each], each))[:_BEST]:
                ratios = [self._expected(method, origin, shape) for shape in shapes]
                mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
                scores.append((mean, origin, method))
        return min(scores)

    def _expected(self, method: Method, origin: GemmShape, shape: GemmShape) -> float:
        """The ratio on a product of a method that was measured on `origin`; of a tile that was not
        tried on the product, since it promised nothing, the worst that was."""
        if shape == origin:
            return self._known[origin][method]
        made = self._adapted(method, origin)
        if self._has_tile(made.cut(shape), shape):
            return self.ratio(made, shape)
        return max(self._known[shape].values())

    def _adapted(self, method: Method, shape: GemmShape) -> Method:
        """What a method that was measured on a product says of others."""
        if self._board is None:
            return method
        return limits_of(method, shape, self._board, self.products[shape][0].dtype)

    def _is_worth_it(self, method: Method, origin: GemmShape, shapes: Sequence[GemmShape]) -> bool:
        """Whether a method is better than the analytic one, as it is today, on the products of a
        key on which that was measured; true if it was on none."""
        gains = []
        for shape in shapes:
            known = self._known[shape].get(self.default(shape)) if self._board else 1.0
            if known is not None:
                gains.append(math.log(self._expected(method, origin, shape) / known))
        return not gains or statistics.fmean(gains) < math.log(_WORTH)

    def relaxes(self, method: Method, shape: GemmShape, without: GemmShape | None = None) -> bool:
        """Whether the nearest products would be better off with a method than with the default, and
        none of them much worse, by those on which its tile was tried: half of them or more, since
        where it was not it promised nothing."""
        near = [s for s in self.nearest(shape) if s != without][:_NEIGHBORS]
        tried = [s for s in near if self._has_tile(method.cut(s), s)]
        gains = [math.log(self.ratio(method, s) / self.ratio(self.default(s), s)) for s in tried]
        if 2 * len(gains) < len(near) or not near:
            return not near
        return statistics.fmean(gains) < math.log(_WORTH) and max(gains) < math.log(_HARMED)

    def _has_tile(self, method: Method, shape: GemmShape) -> bool:
        return any((k.mr, k.nr) == (method.mr, method.nr) for k in self._known[shape])

    def nearest(self, shape: GemmShape) -> list[GemmShape]:
        """The nearest of the other products, one more than are needed."""
        if shape not in self._near:
            others = [s for s in self.products if s != shape]
            others.sort(key=lambda s: (s.log_distance(shape), s))
            self._near[shape] = others[: _NEIGHBORS + 1]
        return self._near[shape]

    def default(self, shape: GemmShape) -> Method:
        """The analytic method of a product; without a board the one others were compared with."""
        if self._board is None:
            known = self._known[shape]
            return min(known, key=lambda method: (abs(known[method] - 1.0), method))
        m = self.products[shape][0]
        return analytic_method(self._board, shape, m.dtype, m.threads, m.packed).cut(shape)

    def ratio(self, method: Method, shape: GemmShape) -> float:
        """The ratio of a method on a measured product, or of the one most like it that was
        tried."""
        at = method.cut(shape), shape
        if at not in self._cost:
            known = self._known[shape]
            self._cost[at] = known[min(known, key=lambda each: (_difference(at[0], each), each))]
        return self._cost[at]

    def least(self, shape: GemmShape) -> float:
        """The ratio of the best method that was tried on a product."""
        return min(self._known[shape].values())


def _radius(best: GemmShape, shapes: Sequence[GemmShape]) -> int:
    """How far from the product it was best for a row holds: as far as it was measured, and what is
    near."""
    measured = max(best.log_distance(shape) for shape in shapes)
    return math.ceil(100.0 * (math.sqrt(measured) + math.sqrt(_NEAR)) ** 2)


def _ratios(measurements: Sequence[Measurement]) -> Mapping[Method, float]:
    """The ratio of each method on one product: the median over CPUs of the median on each, so that
    each counts once, however often it was measured."""
    by_method: dict[Method, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for m in measurements:
        by_method[m.method][m.cpu].append(m.ratio)
    return {
        method: statistics.median(statistics.median(ratios) for ratios in by_cpu.values())
        for method, by_cpu in by_method.items()
    }


def _difference(a: Method, b: Method) -> float:
    tile = abs(math.log(a.mr / b.mr)) + abs(math.log(a.nr / b.nr))
    blocks = sum(abs(math.log(getattr(a, name) / getattr(b, name))) for name in ("mc", "kc", "nc"))
    flags = (a.pack_a != b.pack_a) + (a.pack_b != b.pack_b) + (a.split != b.split)
    return 10.0 * tile + 5.0 * flags + blocks


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")

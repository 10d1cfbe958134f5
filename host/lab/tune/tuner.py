"""The search for good methods, independent of how they are measured.

All measurements go into the history immediately. A restarted tuner reads them back and resumes
where it was, because its proposals depend only on what is known.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.costs.methods.limits import limits_of
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.comparable import comparable
from edgekit.host.lab.tune.method_stats import WORTH
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.propose import default_method, first_methods, neighbors
from edgekit.kb.features import GemmKey, Sequences, key_of
from edgekit.kb.targets.board import BoardProfile

_METHOD_SECONDS = 0.03  # on the board, per method of a product
_BATCH_SECONDS = 8.0  # per request to the board
_BATCH_OPERATIONS = {"instructions": 5e8, "cycles": 2e7}  # likewise, under an emulator
_SAME = 1.01  # times the best: considered equal, so that noise does not steer the search
_MOST_METHODS = 40  # per product
_CONFIRMED = 3  # methods that are measured again at the end, to rule out luck

Known = dict[Method, list[float]]  # ratios to the default


@dataclass(frozen=True)
class MeasuredCost:
    """The cost of one product, in the measurer's unit: median, (p90 - p10) / median, and p10.

    Disturbances on a board only ever add time. On a busy board the low end still reflects a
    method's cost but the median does not, so methods are compared by `low`.
    """

    median: float
    spread: float
    low: float


@dataclass(frozen=True)
class Question:
    """Methods to measure on one product, alternating with its default; `seconds` in total."""

    product: MatrixProduct
    default: Method
    methods: tuple[Method, ...]
    seconds: float


@dataclass(frozen=True)
class TimedProduct:
    """The answer: costs of the default and of the methods in order, and the x86 CPU's name."""

    default: MeasuredCost
    methods: tuple[MeasuredCost, ...]
    cpu: str = ""


class Measurer(Protocol):
    """Measures on a board. `unit`: "seconds", "cycles" or "instructions"."""

    @property
    def unit(self) -> str: ...

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, TimedProduct | None], None]
    ) -> None:
        """Reports each answer by question index as soon as it arrives; None: not measurable."""


@dataclass(frozen=True)
class TuningPlan:
    """What to tune: `board` is its name; `seconds` of budget. Products that are `given` a method
    get it measured, without a search. `sequences` are the table's, which determine the products
    that share a row. `check` raises if the board has become too noisy to continue; measurements
    up to then are kept."""

    board: str
    profile: BoardProfile
    products: tuple[MatrixProduct, ...]
    seconds: float
    kit_version: str
    given: Mapping[MatrixProduct, Method] = field(default_factory=dict)
    sequences: Sequences = field(default_factory=Sequences)
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class TuningProgress:
    """`done` of `total` products in this round; `gain`: geometric mean over the default."""

    step: int
    done: int
    total: int
    measured: int
    gain: float
    seconds_left: float
    product: MatrixProduct


@dataclass(frozen=True)
class BestMethod:
    """The best method found for a product; `ratio` is its cost over the default's."""

    product: MatrixProduct
    method: Method
    ratio: float


@dataclass(frozen=True)
class TuningOutcome:
    """Numbers of ratios `measured` now and `known` before; `finished`: nothing is left to try.
    `refused` products exceed the board's memory."""

    best: tuple[BestMethod, ...]
    measured: int
    known: int
    finished: bool
    refused: tuple[MatrixProduct, ...]


class Tuner:
    """`clock` returns seconds, `now` the time of day as text."""

    def __init__(
        self,
        plan: TuningPlan,
        measurer: Measurer,
        history: History,
        clock: Callable[[], float],
        now: Callable[[], str],
    ) -> None:
        self._plan, self._measurer, self._history = plan, measurer, history
        self._clock, self._now = clock, now
        self._end = clock() + plan.seconds
        self._known = self._read_back()
        self._before = sum(len(ratios) for k in self._known.values() for ratios in k.values())
        self._measured = 0
        self._refused: set[MatrixProduct] = set()

    def run(self, on_progress: Callable[[TuningProgress], None]) -> TuningOutcome:
        """Searches until the budget is used or nothing is left to try.

        First measures the analytic candidates of every product, then alternates local search
        steps among products, so that no product is neglected when it is stopped. Finally,
        products that share a table row try each other's best methods, as one must serve all.
        """
        going_on, step = list(self._plan.products), 0
        while going_on:
            asked = [q for p in going_on if (q := self._step_question(p, step))]
            if not self._measure_batches(asked, step, on_progress):
                return self._make_outcome(finished=False)
            if step > 0:
                going_on = [q.product for q in asked]
            done = self._refused | self._plan.given.keys()
            going_on = [p for p in going_on if p not in done]
            step += 1
        for ask in (self._ask_of_others, self._confirm_question):
            asked = [q for p in self._plan.products if (q := ask(p))]
            if not self._measure_batches(asked, step, on_progress):
                return self._make_outcome(finished=False)
        return self._make_outcome(finished=True)

    def _step_question(self, product: MatrixProduct, step: int) -> Question | None:
        """The question for one step of a product, unless the answers are already known."""
        known, profile = self._known[product], self._plan.profile
        if product in self._plan.given:
            wanted = [default_method(profile, product), self._plan.given[product]]
        elif step == 0:
            few = self._measurer.unit == "cycles"
            wanted = first_methods(profile, product, self._counting, few)
        else:
            wanted = neighbors(profile, product, _search_center(known), self._counting)
        return self._question_new(product, wanted)

    def _ask_of_others(self, product: MatrixProduct) -> Question | None:
        """Asks for the best methods of the other products sharing a row with this one."""
        if self._counting or not self._may_share(product):
            return None
        key, profile = self._gemm_key(product), self._plan.profile
        mates = [p for p in self._plan.products if self._may_share(p) and self._gemm_key(p) == key]
        best = ((_best_method(self._known[mate]), mate) for mate in mates if mate != product)
        made = (limits_of(method, mate.shape, profile, mate.dtype) for method, mate in best)
        return self._question_new(product, [method.cut(product.shape) for method in made])

    def _may_share(self, product: MatrixProduct) -> bool:
        done = product in self._refused or product in self._plan.given
        return not done and bool(self._known[product])

    def _gemm_key(self, product: MatrixProduct) -> GemmKey:
        p = product
        return key_of(p.shape, 0, self._plan.sequences, p.dtype, p.threads, p.packed)

    def _confirm_question(self, product: MatrixProduct) -> Question | None:
        """Asks for the best methods again; only times vary from run to run."""
        if self._measurer.unit != "seconds" or product in self._refused:
            return None
        known = self._known[product]
        best = sorted(known, key=lambda m: (statistics.median(known[m]), m))[:_CONFIRMED]
        return self._make_question(product, [m for m in best if len(known[m]) == 1])

    def _question_new(self, product: MatrixProduct, wanted: Iterable[Method]) -> Question | None:
        """A question for the unknown methods, up to the limit per product."""
        known = self._known[product]
        missing = [m for m in dict.fromkeys(wanted) if m not in known]
        return self._make_question(product, missing[: max(_MOST_METHODS - len(known), 0)])

    def _make_question(self, product: MatrixProduct, methods: list[Method]) -> Question | None:
        if not methods:
            return None
        default = default_method(self._plan.profile, product)
        others = tuple(m for m in methods if m != default)
        return Question(product, default, others, _METHOD_SECONDS * (len(others) + 1))

    def _measure_batches(
        self,
        questions: Sequence[Question],
        step: int,
        on_progress: Callable[[TuningProgress], None],
    ) -> bool:
        """Asks the board batch by batch; returns False if the budget runs out first."""
        done = 0
        for batch in _split_batches(questions, self._measurer.unit):
            if self._measured and self._clock() >= self._end:
                return False  # but always measure something, so that repeated runs make progress

            self._plan.check()

            def on_answer(
                index: int,
                timed: TimedProduct | None,
                batch: Sequence[Question] = batch,
                done: int = done,
            ) -> None:
                self._store_times(batch[index], timed)
                product = batch[index].product
                on_progress(self._make_progress(step, done + index + 1, len(questions), product))

            self._measurer.measure(batch, on_answer)
            done += len(batch)
        return True

    def _store_times(self, question: Question, timed: TimedProduct | None) -> None:
        product = question.product
        if timed is None:
            self._refused.add(product)
            return
        pairs = [(question.default, timed.default)]
        pairs += zip(question.methods, timed.methods, strict=True)
        rows = [self._to_measurement(product, method, cost, timed) for method, cost in pairs]
        self._history.add(rows)
        self._measured += len(rows)
        for row in rows:
            self._known[product].setdefault(row.method, []).append(row.ratio)

    @property
    def _counting(self) -> bool:
        return self._measurer.unit == "instructions"

    def _to_measurement(
        self, product: MatrixProduct, method: Method, cost: MeasuredCost, timed: TimedProduct
    ) -> Measurement:
        return Measurement(
            board=self._plan.board,
            platform=self._plan.profile.platform,
            dtype=product.dtype,
            threads=product.threads,
            shape=product.shape,
            method=method,
            cost=cost.low,
            default_cost=timed.default.low,
            spread=cost.spread,
            when=self._now(),
            kit_version=self._plan.kit_version,
            source="tuner",
            unit=self._measurer.unit,
            packed=product.packed,
            cpu=timed.cpu,
        )

    def _read_back(self) -> dict[MatrixProduct, Known]:
        """Known ratios of these products in the history, from this board and edgekit version and to
        today's default."""
        known: dict[MatrixProduct, Known] = {product: {} for product in self._plan.products}
        history = self._history.read(self._plan.profile.platform).measurements
        for m in comparable(history, self._plan.profile):
            product = MatrixProduct(m.shape, m.dtype, m.threads, m.packed)
            same = (m.board, m.kit_version, m.unit) == (
                self._plan.board,
                self._plan.kit_version,
                self._measurer.unit,
            )
            if same and m.source == "tuner" and product in known:
                known[product].setdefault(m.method, []).append(m.ratio)
        return known

    def _make_progress(
        self, step: int, done: int, total: int, product: MatrixProduct
    ) -> TuningProgress:
        ratios = [_best_ratio(known) for known in self._known.values() if known]
        left = self._end - self._clock()
        return TuningProgress(
            step, done, total, self._measured, _mean_speedup(ratios), left, product
        )

    def _make_outcome(self, finished: bool) -> TuningOutcome:
        best = tuple(
            BestMethod(product, _best_method(known), _best_ratio(known))
            for product, known in self._known.items()
            if known
        )
        refused = tuple(sorted(self._refused))
        return TuningOutcome(best, self._measured, self._before, finished, refused)


def _split_batches(questions: Sequence[Question], unit: str) -> Iterator[list[Question]]:
    """Splits questions into requests small enough to keep to the budget."""
    batch: list[Question] = []
    cost, most = 0.0, _BATCH_OPERATIONS.get(unit, _BATCH_SECONDS)
    for question in questions:
        work = question.product.shape.operations * (len(question.methods) + 1)
        batch.append(question)
        cost += work if unit in _BATCH_OPERATIONS else question.seconds
        if cost >= most:
            yield batch
            batch, cost = [], 0.0
    if batch:
        yield batch


def _best_method(known: Mapping[Method, Sequence[float]]) -> Method:
    return min(known, key=lambda method: (statistics.median(known[method]), method))


def _search_center(known: Mapping[Method, Sequence[float]]) -> Method:
    """The first known method that is as good as the best."""
    least = _best_ratio(known)
    return next(m for m, ratios in known.items() if statistics.median(ratios) <= _SAME * least)


def _best_ratio(known: Mapping[Method, Sequence[float]]) -> float:
    return min((statistics.median(ratios) for ratios in known.values()), default=math.inf)


def _mean_speedup(ratios: Iterable[float]) -> float:
    """The geometric mean speedup over the default."""
    logs = [-math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logs)) if logs else 1.0


def gain_of(outcome: TuningOutcome) -> float:
    """The geometric mean speedup of the best methods over the default method."""
    return _mean_speedup(best.ratio for best in outcome.best)


def worth_rows(outcome: TuningOutcome) -> int:
    """The number of products whose best method gains enough for a row of a table."""
    return sum(best.ratio < WORTH for best in outcome.best)

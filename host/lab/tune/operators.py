"""Searches for the best methods of a model's operators, measured in place.

All measurements go into the history immediately. A restarted tuner reads them back and resumes
where it was, because its proposals depend only on what is known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from edgekit.host.compiler.costs.methods.operators import OperatorMethod
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.lab.history.operator_history import OperatorMeasurement, operator_rows
from edgekit.host.lab.history.store import History
from edgekit.host.lab.history.tunable_ops import (
    TunableOp,
    TuningTask,
    changed_steps,
    methods_to_try,
)
from edgekit.host.lab.tune.measured_cache import KnownRatios, known_ratios
from edgekit.kb.features import GemmKey

_BETTER = 0.99  # times the best so far: an improvement
_PATIENCE = 5  # methods of a key without improvement before it is considered exhausted
_SHARE = 0.01  # of the model's time that a round's operators must account for
MOST_COMBINATIONS = 4
_MOST_SETTLED = 4  # attempts to find a combination that is not slower than before


@dataclass(frozen=True)
class ModelCosts:
    """The costs of operators, by name, and of the entire model, in the measurer's unit."""

    operators: Mapping[str, float]
    total: float


class OperatorMeasurer(Protocol):
    """Measures a model with a table's methods. `source` and `unit` as in `OperatorMeasurement`;
    `per_ms`: units per millisecond; operators below `least` units are lost in noise; methods with
    an estimated cost above `worth` times the least are not tried."""

    @property
    def unit(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def per_ms(self) -> float: ...
    @property
    def least(self) -> float: ...
    @property
    def worth(self) -> float: ...

    def measure(
        self, table: KnowledgeBase, default: KnowledgeBase
    ) -> tuple[ModelCosts, ModelCosts]:
        """Measures both tables, alternately if times vary between runs."""


@dataclass(frozen=True)
class ModelPlan:
    """What to tune. `check` raises if `board` has become too noisy to continue; measurements up to
    then are kept. `most_combinations`: of best methods, measured together."""

    board: str
    subject: TuningTask
    seconds: float
    kit_version: str
    check: Callable[[], None] = lambda: None
    most_combinations: int = MOST_COMBINATIONS


@dataclass(frozen=True)
class ModelProgress:
    """`left` of `keys` operators still have methods to try; `gain`: of all operators together, as
    measured one by one; None while unknown."""

    round: int
    left: int
    keys: int
    measured: int
    gain: float | None
    seconds_left: float


@dataclass(frozen=True)
class Won:
    """An operator, its method, and the ratio of its cost to that without rows."""

    operator: TunableOp
    method: OperatorMethod
    ratio: float


@dataclass(frozen=True)
class ModelOutcome:
    """Milliseconds of the model: without rows, as compiled before, and with the methods found;
    numbers of measurements made now and known before; `finished`: nothing is left to try."""

    default_ms: float
    before_ms: float
    after_ms: float
    won: tuple[Won, ...]
    measured: int
    known: int
    finished: bool


_Whole = frozenset[tuple[GemmKey, OperatorMethod]]  # a model's non-default methods


@dataclass
class _State:
    """The findings of the search so far."""

    known: KnownRatios
    measured: int = 0
    rounds: int = 0
    default: ModelCosts | None = None
    totals: dict[_Whole, float] = field(default_factory=dict)  # relative to the default's


class ModelTuner:
    """`clock` returns seconds, `now` the time of day as text."""

    def __init__(
        self,
        plan: ModelPlan,
        measurer: OperatorMeasurer,
        history: History,
        clock: Callable[[], float],
        now: Callable[[], str],
    ) -> None:
        self._plan, self._measurer, self._history = plan, measurer, history
        self._clock, self._now = clock, now
        self._end = clock() + plan.seconds
        self._operators = plan.subject.operators
        self._to_try = methods_to_try(self._operators, measurer.worth)
        self._by_key: dict[GemmKey, list[TunableOp]] = defaultdict(list)
        for each in self._operators:
            self._by_key[each.key].append(each)
        self._state = _State(self._read_back())
        self._before = len(self._state.known)

    def run(self, on_progress: Callable[[ModelProgress], None]) -> ModelOutcome:
        """Searches until the budget is used or nothing is left to try.

        First measures what is compiled today, then in each round the next method of every key,
        all in one build of the model; groups come before their members. Finally measures the
        best methods together, until each is still worth it in combination.
        """
        self._state.totals[frozenset()] = 1.0
        ordered = sorted(self._operators, key=lambda s: s.current != s.default)
        current = {s.key: s.current for s in ordered}  # members of chains only have the default
        before = self._measure(current, on_progress, together=True)
        self._to_try = {k: m for k, m in self._to_try.items() if self._exceeds_noise(k)}
        finished = self._search_separately(on_progress) and self._try_together(on_progress)
        after = self._settle(before, current, on_progress)
        return self._make_outcome(before, after, finished)

    def _search_separately(self, on_progress: Callable[[ModelProgress], None]) -> bool:
        """Returns False if the budget is used before everything is tried."""
        while self._is_worth_a_round(asked := self._next_methods()):
            if self._state.rounds > 1 and self._clock() >= self._end:
                return False  # but always measure something, so that repeated runs make progress
            self._measure(asked, on_progress)
        return True

    def _next_methods(self) -> dict[GemmKey, OperatorMethod]:
        """The methods to measure next. A group's method decides which operators exist, so its
        members wait."""
        asked = {k: m for k in self._to_try if (m := self._next_method(k)) is not None}
        groups = [k for k in asked if self._by_key[k][0].is_group]
        members = {step for k in groups for each in self._by_key[k] for step in each.steps}
        waits = {k for k in asked if any(s.steps & members for s in self._by_key[k])}
        return {k: m for k, m in asked.items() if k in groups or k not in waits}

    def _is_worth_a_round(self, asked: Mapping[GemmKey, OperatorMethod]) -> bool:
        """Whether the operators with something to try account for enough of the model's time: a
        round builds and measures all of it."""
        assert self._state.default is not None
        steps = {name for key in asked for each in self._by_key[key] for name in each.steps}
        taken = sum(self._state.default.operators.get(name, 0.0) for name in steps)
        return taken >= _SHARE * self._state.default.total and bool(asked)

    def _try_together(self, on_progress: Callable[[ModelProgress], None]) -> bool:
        for _ in range(self._plan.most_combinations):
            best = self._best_methods()
            if self._non_default_methods(best) in self._state.totals:
                return True
            if self._clock() >= self._end:
                return False
            self._measure(best, on_progress, together=True)
        return True

    def _settle(
        self,
        before: float,
        current: Mapping[GemmKey, OperatorMethod],
        on_progress: Callable[[ModelProgress], None],
    ) -> float:
        """The model's cost with the best methods, relative to that without rows. Gives up new
        methods if they make the model slower than before."""
        usual = min(before, 1.0)
        kept = current if before <= 1.0 else {}
        for _ in range(_MOST_SETTLED):
            best = self._best_methods()
            after = self._total_together(best, on_progress)
            worse = {k: m for k, m in best.items() if m != kept.get(k)}
            if after <= min(before / _BETTER, 1.0):
                break
            if worse:
                self._give_up(worse, after / usual)
            elif after > before:  # last measured together with methods that are now given up
                self._measure(current, on_progress, together=True)
            else:
                break
        return after

    def _total_together(
        self,
        methods: Mapping[GemmKey, OperatorMethod],
        on_progress: Callable[[ModelProgress], None],
    ) -> float:
        total = self._state.totals.get(self._non_default_methods(methods))
        return total if total is not None else self._measure(methods, on_progress, together=True)

    def _give_up(self, methods: Mapping[GemmKey, OperatorMethod], total: float) -> None:
        """Charges methods that lose in combination with the loss, relative to the model without
        rows or as compiled before, since their shares can no longer be determined."""
        assert self._state.default is not None
        usual = self._state.default.operators
        rows = [
            self._row_of(each, methods[each.key], total * each.cost_in(usual), each.cost_in(usual))
            for each in self._operators
            if methods.get(each.key) in each.costs and each.cost_in(usual) > 0
        ]
        self._history.add_operators(rows)
        self._state.known.update({(m.operator, m.method): m.ratio for m in rows})

    def _next_method(self, key: GemmKey) -> OperatorMethod | None:
        """The key's first untested method; None after many without improvement."""
        best, since = 1.0, 0
        for method in self._to_try[key]:
            operators = [s for s in self._by_key[key] if method in s.costs]
            ratios = [self._state.known.get((s.name, method)) for s in operators]
            found = [r for r in ratios if r is not None]
            if len(found) < len(ratios):
                return method
            mean = math.exp(sum(math.log(r) for r in found) / len(found))
            since = 0 if mean < _BETTER * best else since + 1
            best = min(best, mean)
            if since >= _PATIENCE:
                return None
        return None

    def _measure(
        self,
        methods: Mapping[GemmKey, OperatorMethod],
        on_progress: Callable[[ModelProgress], None],
        together: bool = False,
    ) -> float:
        """Measures the model with one method per key and stores its operators' costs. Methods
        to be used `together` are charged with the other operators' losses next to them."""
        self._plan.check()
        subject, state = self._plan.subject, self._state
        tables = subject.table_with(methods), subject.table_with({})
        times, default = self._measurer.measure(*tables)
        charge = self._collateral_loss(methods, times, default) if together else 0.0
        groups = [each for each in self._operators if each.is_group]
        moved = changed_steps(groups, methods)  # same names may now denote other operators
        rows = [
            self._row_of(each, methods[each.key], cost + charge * usual, usual)
            for each in self._operators
            if methods.get(each.key) in each.costs
            and (each.is_group or each.name not in moved)
            and (usual := each.cost_in(default.operators)) >= self._measurer.least
            and (cost := each.cost_in(times.operators)) > 0
        ]
        self._history.add_operators(rows)
        state.measured += len(rows)
        state.rounds += 1
        state.default = default
        state.known.update({(m.operator, m.method): m.ratio for m in rows})
        for each in self._operators:  # do not retry unmeasurable operators forever
            if (method := methods.get(each.key)) is not None:
                state.known.setdefault((each.name, method), 1.0)
        total = times.total / default.total
        state.totals[self._non_default_methods(methods)] = total
        on_progress(self._make_progress())
        return total

    def _collateral_loss(
        self, methods: Mapping[GemmKey, OperatorMethod], times: ModelCosts, default: ModelCosts
    ) -> float:
        """The loss of operators without a new method, relative to the default cost of those with
        one: different code and weights shift cache contents for neighboring operators."""
        new = changed_steps(self._operators, methods)
        taken = sum(default.operators.get(name, 0.0) for name in new)
        if taken <= 0:
            return 0.0
        saved = taken - sum(times.operators.get(name, 0.0) for name in new)
        lost = times.total + saved - default.total
        return max(lost, 0.0) / taken

    def _row_of(
        self, operator: TunableOp, method: OperatorMethod, cost: float, default: float
    ) -> OperatorMeasurement:
        plan = self._plan
        if method == operator.default:
            cost = default  # the same code: any difference is noise
        return OperatorMeasurement(
            board=plan.board,
            platform=plan.subject.board.platform,
            model=plan.subject.name,
            operator=operator.name,
            form=operator.form.name,
            threads=plan.subject.threads,
            shape=operator.form.shape,
            method=method,
            cost=cost,
            default_cost=default,
            when=self._now(),
            kit_version=plan.kit_version,
            source=self._measurer.source,
            unit=self._measurer.unit,
        )

    def _history_here(self) -> list[OperatorMeasurement]:
        return self._history.read_operators(self._plan.subject.board.platform).measurements

    def _read_back(self) -> KnownRatios:
        plan, unit = self._plan, self._measurer.unit
        return known_ratios(self._history_here(), plan.board, plan.subject, plan.kit_version, unit)

    def _best_methods(self) -> dict[GemmKey, OperatorMethod]:
        """The methods for this model's keys in a table built from the history."""
        table = self._plan.subject.table
        rows = operator_rows(self._history_here(), table.platforms, table.for_operators)
        found = {row.key: row.method for row in rows}
        return {k: m for k in self._to_try if (m := found.get(k)) is not None}

    def _exceeds_noise(self, key: GemmKey) -> bool:
        """Whether an operator of a key takes long enough to stand out from noise."""
        assert self._state.default is not None
        costs = self._state.default.operators
        return any(s.cost_in(costs) >= self._measurer.least for s in self._by_key[key])

    def _non_default_methods(self, methods: Mapping[GemmKey, OperatorMethod]) -> _Whole:
        return frozenset(
            (key, method)
            for key, method in methods.items()
            if any(method in s.costs and method != s.default for s in self._by_key[key])
        )

    def _make_progress(self) -> ModelProgress:
        left = sum(self._next_method(key) is not None for key in self._to_try)
        state = self._state
        gain = self._gain_apart()
        seconds = self._end - self._clock()
        return ModelProgress(state.rounds, left, len(self._to_try), state.measured, gain, seconds)

    def _gain_apart(self) -> float | None:
        """The model's gain if each operator had its best method, from individual measurements."""
        default = self._state.default
        if default is None:
            return None
        least: dict[str, float] = {}
        for (name, _), ratio in self._state.known.items():
            least[name] = min(ratio, least.get(name, 1.0))
        saved, counted = 0.0, set[str]()
        for each in self._operators:  # groups before their members
            if (ratio := least.get(each.name, 1.0)) < 1.0 and not each.steps & counted:
                saved += (1.0 - ratio) * each.cost_in(default.operators)
                counted |= each.steps
        return default.total / (default.total - saved)

    def _make_outcome(self, before: float, after: float, finished: bool) -> ModelOutcome:
        assert self._state.default is not None
        default = self._state.default.total / self._measurer.per_ms
        best = self._best_methods()
        won = tuple(
            Won(s, best[s.key], self._state.known.get((s.name, best[s.key]), 1.0))
            for s in self._operators
            if s.key in best
        )
        state = self._state
        return ModelOutcome(
            default, default * before, default * after, won, state.measured, self._before, finished
        )


def gain_of(outcome: ModelOutcome) -> float:
    """The model's speedup over its time without rows."""
    return outcome.default_ms / outcome.after_ms

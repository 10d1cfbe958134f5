"""Runs one tuning session for a model's methods and orders: lock, search, tables, lost links."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.device.version import VERSION
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tables.gemm import user_table
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.release.session import owner
from edgekit.host.errors import InputError, UnreachableError
from edgekit.host.lab.history.store import History
from edgekit.host.lab.history.tunable_ops import TuningTask, tuning_task_of
from edgekit.host.lab.tune.lock import tuning_alone
from edgekit.host.lab.tune.operator_times import LEAST_SECONDS, EstimatedTimes, MeasuredTimes
from edgekit.host.lab.tune.operators import (
    MOST_COMBINATIONS,
    ModelOutcome,
    ModelPlan,
    ModelProgress,
    ModelTuner,
    OperatorMeasurer,
)
from edgekit.host.lab.tune.orders import (
    BoardOrders,
    EstimatedOrders,
    OrderJob,
    OrderMeasurer,
    OrderOutcome,
    has_untried_orders,
    tune_orders,
)
from edgekit.host.lab.tune.tables import build_for
from edgekit.host.simulator.target import SimulatedCore, target_of
from edgekit.kb.targets.board import BoardProfile

_FEWEST_ORDERS, _MOST_ORDERS = 2, 6
_AGAIN = 2  # runs of the final comparison: the searched order and the best of each subgraph
_ORDER_TURNS, _ORDER_SECONDS = 3, 1  # on a board


@dataclass(frozen=True)
class ModelSearch:
    """How to search. `operators` and `orders` make what estimates them for a core without a board;
    `orders_wanted` tells whether to try orders of a model; `order_runs`: runs of their final
    comparison; `least`: seconds of an operator on a board that are not lost in noise;
    `most_combinations`: as in `ModelPlan`."""

    operators: Callable[[TuningTask, Callable[[str], None]], OperatorMeasurer] = EstimatedTimes
    orders: Callable[[SimulatedCore, int, Callable[[str], None]], OrderMeasurer] = EstimatedOrders
    orders_wanted: Callable[[OrderJob], bool] = has_untried_orders
    order_runs: int = _AGAIN
    least: float = LEAST_SECONDS
    most_combinations: int = MOST_COMBINATIONS


@dataclass(frozen=True)
class ModelJob:
    """What to tune: on `device`, or in simulated time if None. `now` returns the time of
    day as text, `tell` reports slow steps."""

    board: str
    profile: BoardProfile
    model: Path
    options: CompileOptions
    threads: int
    seconds: float
    device: Board | None
    now: Callable[[], str]
    tell: Callable[[str], None]
    check: Callable[[], None] = lambda: None
    search: ModelSearch = ModelSearch()


@dataclass(frozen=True)
class ModelTuned:
    """The result of the search for methods, the table built from it, and the result for orders;
    None if orders were not tried."""

    outcome: ModelOutcome
    table: Path
    orders: OrderOutcome | None


class _Pace:
    """Measures the duration of a search round, including compilation."""

    def __init__(self, on_progress: Callable[[ModelProgress], None]) -> None:
        self._on_progress, self._began, self._rounds = on_progress, time.monotonic(), 0

    def show(self, progress: ModelProgress) -> None:
        self._rounds = progress.round
        self._on_progress(progress)

    def rounds_in(self, seconds: float) -> int:
        """The number of further rounds that fit into `seconds`."""
        taken = (time.monotonic() - self._began) / max(self._rounds, 1)
        return int(seconds / taken) if taken > 0 else _MOST_ORDERS


def tune_model(
    job: ModelJob, on_progress: Callable[[ModelProgress], None], on_order: Callable[[str], None]
) -> ModelTuned:
    """Tunes a model for a board: first its operators' methods, from which the board's table is
    built, then, if time is left, the order of its operators with these methods, reporting to
    `on_order`. Everything measured is in the history, however this ends.

    Raises BusyError if the board is being tuned, UnreachableError if the connection is lost.
    """
    holder = f"{owner()}, since {job.now()}"
    with tuning_alone(job.board, holder):
        end = time.monotonic() + job.seconds
        subject = tuning_task_of(job.model, job.profile, job.options, job.threads)
        if not subject.operators:
            raise InputError(
                f"{job.model}: expected operators with several methods on {job.profile.name}, "
                "found none; there is nothing to tune"
            )
        left = max(end - time.monotonic(), 0.0)
        most = job.search.most_combinations
        plan = ModelPlan(job.board, subject, left, VERSION, job.check, most)
        pace = _Pace(on_progress)
        try:
            outcome = _run_tuner(plan, subject, job, pace.show)
            path = user_table(job.profile)
            if outcome.measured or outcome.known:
                build_for(job.profile, path, alone=False)
            return _with_orders(job, ModelTuned(outcome, path, None), pace, end, on_order)
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}; measurements are kept, and the same command resumes"
            ) from None


def _with_orders(
    job: ModelJob,
    tuned: ModelTuned,
    pace: _Pace,
    end: float,
    on_order: Callable[[str], None],
) -> ModelTuned:
    """Tries orders as the last step; the outcome is unfinished if there is no time for it."""
    asked = order_job(job, 0, on_order)
    if not tuned.outcome.finished or not job.search.orders_wanted(asked):
        return tuned
    most = min(pace.rounds_in(end - time.monotonic()) - job.search.order_runs, _MOST_ORDERS)
    if most < _FEWEST_ORDERS:
        return replace(tuned, outcome=replace(tuned.outcome, finished=False))
    job.check()
    orders = tune_orders(replace(asked, most=most), order_measurer(job, on_order))
    return replace(tuned, orders=orders)


def order_job(job: ModelJob, most: int, on_order: Callable[[str], None]) -> OrderJob:
    """The search for orders of the job's model, at most `most` of them."""
    options = replace(job.options, threads=job.threads)
    return OrderJob(
        job.board, job.profile, job.model, options, most, job.threads, job.now(), on_order
    )


def order_measurer(job: ModelJob, on_order: Callable[[str], None]) -> OrderMeasurer:
    """Returns what measures orders on the job's board, or estimates them."""
    if job.device is None:
        return job.search.orders(target_of(job.profile), job.threads, on_order)
    return BoardOrders(job.device, job.threads, _ORDER_TURNS, _ORDER_SECONDS, on_order)


def _run_tuner(
    plan: ModelPlan,
    subject: TuningTask,
    job: ModelJob,
    on_progress: Callable[[ModelProgress], None],
) -> ModelOutcome:
    with History() as history:
        if job.device is None:
            estimated = job.search.operators(subject, job.tell)
            return ModelTuner(plan, estimated, history, time.monotonic, job.now).run(on_progress)
        measured = MeasuredTimes(subject, job.device, job.search.least)
        try:
            return ModelTuner(plan, measured, history, time.monotonic, job.now).run(on_progress)
        finally:
            measured.close()

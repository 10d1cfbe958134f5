"""One tuning of a model's operators: lock, search, the table, and what a lost link means."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.version import VERSION
from edgekit.host.api import Device
from edgekit.host.errors import InputError, UnreachableError
from edgekit.host.history.standing import Subject, subject_of
from edgekit.host.history.store import History
from edgekit.host.options import CompileOptions
from edgekit.host.release.session import owner
from edgekit.host.tables.gemm import user_table
from edgekit.host.tune.lock import tuning_alone
from edgekit.host.tune.operator_times import EstimatedTimes, MeasuredTimes
from edgekit.host.tune.operators import ModelOutcome, ModelPlan, ModelProgress, ModelTuner
from edgekit.host.tune.tables import build_for
from edgekit.kb.board import BoardProfile


@dataclass(frozen=True)
class ModelJob:
    """What to tune: on `device`, or by board time if there is none. `now` gives the time of day as
    text, `tell` hears of what takes a while."""

    board: str
    profile: BoardProfile
    model: Path
    options: CompileOptions
    threads: int
    seconds: float
    device: Device | None
    now: Callable[[], str]
    tell: Callable[[str], None]
    check: Callable[[], None] = lambda: None


def tune_model(
    job: ModelJob, on_progress: Callable[[ModelProgress], None]
) -> tuple[ModelOutcome, Path]:
    """Tunes a model for a board and builds the board's table of it: what happened, and the table.
    Everything measured is in the history, however this ends.

    Raises BusyError if the board is being tuned, UnreachableError if it is lost on the way.
    """
    holder = f"{owner()}, since {job.now()}"
    with tuning_alone(job.board, holder):
        began = time.monotonic()
        subject = subject_of(job.model, job.profile, job.options, job.threads)
        if not subject.operators:
            raise InputError(
                f"{job.model}: expected operators with several methods on {job.profile.name}, "
                "found none; there is nothing to tune"
            )
        left = max(job.seconds - (time.monotonic() - began), 0.0)
        plan = ModelPlan(job.board, subject, left, VERSION, job.check)
        try:
            outcome = _searched(plan, subject, job, on_progress)
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}; what was measured is kept, and the same command goes on"
            ) from None
        path = user_table(job.profile)
        if outcome.measured or outcome.known:
            build_for(job.profile, path, alone=False)
        return outcome, path


def _searched(
    plan: ModelPlan, subject: Subject, job: ModelJob, on_progress: Callable[[ModelProgress], None]
) -> ModelOutcome:
    with History() as history:
        if job.device is None:
            estimated = EstimatedTimes(subject, job.tell)
            return ModelTuner(plan, estimated, history, time.monotonic, job.now).run(on_progress)
        measured = MeasuredTimes(subject, job.device)
        try:
            return ModelTuner(plan, measured, history, time.monotonic, job.now).run(on_progress)
        finally:
            measured.close()

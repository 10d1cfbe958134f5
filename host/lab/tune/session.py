"""Runs one tuning session for a board: lock, upload of kernels, search, lost links."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgekit.device.version import VERSION
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm import kit_table
from edgekit.host.deploy.release.session import owner
from edgekit.host.errors import UnreachableError
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.lock import tuning_alone
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import Measurer, Tuner, TuningOutcome, TuningPlan, TuningProgress
from edgekit.kb.features import Sequences
from edgekit.kb.targets.board import BoardProfile


@dataclass(frozen=True)
class TuningJob:
    """What to tune; `now` returns the time of day as text. `given`: see `TuningPlan`."""

    board: str
    profile: BoardProfile
    products: tuple[MatrixProduct, ...]
    seconds: float
    now: Callable[[], str]
    given: Mapping[MatrixProduct, Method] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None


def tune(
    job: TuningJob,
    make_measurer: Callable[[], Measurer],
    on_progress: Callable[[TuningProgress], None],
    clock: Callable[[], float] = time.monotonic,
) -> TuningOutcome:
    """Tunes a board; everything measured is in the history, however this ends.

    `make_measurer` may take long, which counts as part of the budget; `clock` returns seconds.
    Raises BusyError if the board is being tuned, UnreachableError if the connection is lost.
    """
    holder = f"{owner()}, since {job.now()}"
    with tuning_alone(job.board, holder), History() as history:
        base = kit_table(job.profile)
        sequences = base.sequences if base else Sequences()
        began = clock()
        measurer = make_measurer()
        left = max(job.seconds - (clock() - began), 0.0)
        plan = TuningPlan(
            job.board, job.profile, job.products, left, VERSION, job.given, sequences, job.check
        )
        try:
            return Tuner(plan, measurer, history, clock, job.now).run(on_progress)
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}; measurements are kept, and the same command resumes"
            ) from None

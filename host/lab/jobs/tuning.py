"""Tunes several boards concurrently, each in slices of its budget, one task after another.

A slice is the unit of work lost when its worker or this program dies; measurements are kept
anyway. The next slice goes to any worker that reaches the board, with everything known on this
host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.host.lab.jobs.pool import Pool, work_off
from edgekit.host.lab.jobs.task import MeasuredRows, Sent, Task, TaskReport, bring_home, rows_of

_SLICE_SECONDS = 60.0


@dataclass
class Tuning:
    """The state of a board's tuning: last report, number of new measurements, and slices."""

    board: str
    report: TaskReport | None = None
    measured: int = 0
    slices: int = 0
    ends: float = field(default=0.0, repr=False)

    @property
    def ok(self) -> bool:
        return self.report is not None and self.report.code == 0

    @property
    def document(self) -> Mapping[str, Any]:
        """The document of the last slice; empty if it failed."""
        return (self.report and self.report.document) or {}


def tune_boards(
    pool: Pool,
    boards: Sequence[str],
    command: Sequence[str | Sent],
    files: Mapping[str, bytes],
    seconds: float,
    tell: Callable[[Tuning], None],
) -> list[Tuning]:
    """Runs `command` (a `tune` without board, budget and --json) on each board for `seconds`.
    `tell` is called after every slice, when its rows are in this host's history. After an
    interruption, the same call resumes."""
    found = {board: Tuning(board) for board in boards}

    def task(tuning: Tuning) -> Task | None:
        left = tuning.ends - time.monotonic()
        if tuning.slices and left <= 0:
            return None
        budget = max(1, round(min(left, _SLICE_SECONDS)))
        words = (*command, "--board", tuning.board, "--budget", f"{budget}s", "--json")
        rows = rows_of(tuning.board) if pool.remote else MeasuredRows()
        return Task(words, tuning.board, files, leased=True, rows=rows)

    def first(tuning: Tuning) -> Task:
        tuning.ends = time.monotonic() + seconds
        begun = task(tuning)
        assert begun is not None
        return begun

    def then(done: Task, report: TaskReport) -> Task | None:
        tuning = found[done.board]
        if pool.remote:
            bring_home(report)
        tuning.report = report
        tuning.slices += 1
        document = report.document or {}
        tuning.measured += document.get("measured", 0)
        tell(tuning)
        return None if report.code or document.get("finished") else task(tuning)

    work_off(pool, map(first, found.values()), then)
    return list(found.values())

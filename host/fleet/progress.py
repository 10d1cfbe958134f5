"""Progress of fleet work: counts by state, slowest boards, estimated time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgekit.host.fleet.runner import BoardOutcome

_SURE = 3  # minimum number of outcomes for an estimate of the time left


@dataclass(frozen=True)
class AtWork:
    """A board being processed: elapsed seconds and current stage."""

    board: str
    seconds: float
    stage: str


class Tally:
    """Counts the events of an `Observer`; `clock` returns seconds."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.done = self.failed = self.canceled = 0
        self._clock = clock
        self._start = clock()
        self._at_work: dict[str, tuple[float, str]] = {}

    @property
    def at_work(self) -> int:
        """Number of boards being processed."""
        return len(self._at_work)

    @property
    def ended(self) -> int:
        """Number of boards that are finished, whatever the result."""
        return self.done + self.failed + self.canceled

    @property
    def waiting(self) -> int:
        """Number of boards not started yet."""
        return self.total - self.ended - self.at_work

    @property
    def seconds(self) -> float:
        """Elapsed time since the start."""
        return self._clock() - self._start

    def began(self, board: str) -> None:
        self._at_work[board] = (self._clock(), "")

    def stage_changed(self, board: str, stage: str) -> None:
        if board in self._at_work:
            self._at_work[board] = (self._at_work[board][0], stage)

    def close(self, outcome: BoardOutcome[Any], failed: bool) -> None:
        """Counts an outcome; one that has a value may still count as `failed`."""
        self._at_work.pop(outcome.board, None)
        if outcome.canceled:
            self.canceled += 1
        elif failed:
            self.failed += 1
        else:
            self.done += 1

    def slowest(self, most: int) -> list[AtWork]:
        """At most `most` boards being processed, longest running first."""
        now = self._clock()
        first = sorted(self._at_work.items(), key=lambda item: item[1][0])[:most]
        return [AtWork(board, now - began, stage) for board, (began, stage) in first]

    def left(self) -> float | None:
        """Estimated seconds left at the current rate; None if there is too little data."""
        if self.ended < _SURE or self.ended == self.total:
            return None
        return self.seconds * (self.total - self.ended) / self.ended

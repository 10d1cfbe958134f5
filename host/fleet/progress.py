"""How far work on a fleet is: counts by state, the slowest boards, when it may be through."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgekit.host.fleet.runner import Outcome

_SURE = 3  # outcomes before a remaining time is told


@dataclass(frozen=True)
class AtWork:
    """A board whose turn it is: for how many seconds, and what is done there."""

    board: str
    seconds: float
    stage: str


class Tally:
    """Counts what a Watch is told; `clock` gives seconds."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.done = self.failed = self.canceled = 0
        self._clock = clock
        self._start = clock()
        self._at_work: dict[str, tuple[float, str]] = {}

    @property
    def at_work(self) -> int:
        """Boards whose turn it is."""
        return len(self._at_work)

    @property
    def ended(self) -> int:
        """Boards whose turn is over, however it went."""
        return self.done + self.failed + self.canceled

    @property
    def waiting(self) -> int:
        """Boards whose turn has not come."""
        return self.total - self.ended - self.at_work

    @property
    def seconds(self) -> float:
        """Since the work began."""
        return self._clock() - self._start

    def began(self, board: str) -> None:
        self._at_work[board] = (self._clock(), "")

    def told(self, board: str, stage: str) -> None:
        if board in self._at_work:
            self._at_work[board] = (self._at_work[board][0], stage)

    def close(self, outcome: Outcome[Any], failed: bool) -> None:
        """Counts an outcome; one with a value may have `failed` as well."""
        self._at_work.pop(outcome.board, None)
        if outcome.canceled:
            self.canceled += 1
        elif failed:
            self.failed += 1
        else:
            self.done += 1

    def slowest(self, most: int) -> list[AtWork]:
        """Boards at work, the longest first."""
        now = self._clock()
        first = sorted(self._at_work.items(), key=lambda item: item[1][0])[:most]
        return [AtWork(board, now - began, stage) for board, (began, stage) in first]

    def left(self) -> float | None:
        """Seconds until the end at the rate so far; None while nothing is sure."""
        if self.ended < _SURE or self.ended == self.total:
            return None
        return self.seconds * (self.total - self.ended) / self.ended

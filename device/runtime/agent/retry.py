"""The retry schedule of a board that sends batches."""

from __future__ import annotations

import random

PERIOD_SECONDS = 600.0
LONGEST_WAIT = 6 * 3600.0
_FIRST_WAIT = 30.0  # after a failure, doubled by each further one


def waits(failures: int, asked: float, period: float, chance: random.Random) -> float:
    """Returns the seconds until the next attempt, randomized per board so that boards that were cut
    off or started together do not come back together."""
    if failures == 0:
        return period * chance.uniform(0.5, 1.5)
    longest = min(_FIRST_WAIT * 2.0 ** min(failures, 30), LONGEST_WAIT)
    return asked + chance.uniform(0, longest)

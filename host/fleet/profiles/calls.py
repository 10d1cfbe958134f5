"""Times of the products that programs in the field compute."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.device.runtime.arrays.calls import KINDS
from edgekit.host.fleet.profiles.query import Source, asking

_CALLS = f"""
    SELECT profile, op, name, kernel, threads, sum(samples), count(DISTINCT board),
        median(median_ns) / 1e3 AS us
    FROM operators WHERE op IN {KINDS} GROUP BY ALL ORDER BY us DESC, name, kernel, threads, profile
"""


@dataclass(frozen=True)
class CallTimes:
    """A product with one method on one type of board: number of samples and boards, and the
    median of its times."""

    board_type: str
    kind: str
    product: str
    method: str
    threads: int
    samples: int
    boards: int
    median_us: float


def call_times(store: Source) -> tuple[CallTimes, ...]:
    """The products of all programs, slowest first."""
    with asking(store) as database:
        return tuple(CallTimes(*row) for row in database.execute(_CALLS).fetchall())

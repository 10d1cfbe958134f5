"""The common format for measured and estimated peer times: an entry of "peers" in a JSON report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PeerTimes:
    """Another engine's times next to ours; None if unknown. `missing` is the reason for absence.

    ratio: its time over ours; p10 and p90 over the rounds of a measurement. error: the largest of
    an output, relative to the reference's largest value.
    """

    version: str | None = None
    precision: str | None = None
    error: float | None = None
    missing: str | None = None
    latency_ms: Mapping[str, float] | None = None
    ours_latency_ms: Mapping[str, float] | None = None
    estimated_ms: float | None = None
    ours_estimated_ms: float | None = None
    ratio: float | None = None
    ratio_p10: float | None = None
    ratio_p90: float | None = None
    cycles: int | None = None
    instructions: int | None = None
    bound: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

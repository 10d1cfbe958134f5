"""What a board answers, as named types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """Progress of a deploy: `state` of edgekit.device.states; `done` of `total` bytes sent."""

    state: str
    done: int = 0
    total: int = 0


OnStep = Callable[[Step], None]


@dataclass(frozen=True)
class DeployPlan:
    """What a deploy would do: paths to send (`send_bytes` in all), or nothing if `unchanged`."""

    release: str
    unchanged: bool
    send: tuple[str, ...]
    send_bytes: int
    there_bytes: int


@dataclass(frozen=True)
class Release:
    """A release in service. `changed` is False if it ran already; `previous` is what ran before.

    `state_ms` are the milliseconds of each state passed on the board, `health` what the golden
    check found there.
    """

    id: str
    model: str
    changed: bool
    previous: str | None
    sent_bytes: int
    state_ms: Mapping[str, float]
    health: Mapping[str, Any]


@dataclass(frozen=True)
class ReleaseInfo:
    """An installed release, as the board describes it."""

    id: str
    model: str
    model_sha256: str
    profile: str
    kit_version: str
    counter: int
    bytes: int


@dataclass(frozen=True)
class BoardStatus:
    """What runs, what ran before, and why the last release was rolled back, if one was."""

    current: ReleaseInfo | None
    previous: ReleaseInfo | None
    interrupted: bool
    last_failure: Mapping[str, Any] | None


@dataclass(frozen=True)
class OperatorTime:
    """One operator of one run, or its median over a benchmark with its share of the whole."""

    name: str
    op: str
    kernel: str
    median_us: float
    share: float


@dataclass(frozen=True)
class Timings:
    """One inference."""

    release: str
    threads: int
    latency_ms: float
    operators: tuple[OperatorTime, ...]


@dataclass(frozen=True)
class Conditions:
    """How the board's clock stood around a benchmark; None where it is not readable."""

    governor: str | None
    frequency_mhz: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class Benchmark:
    """Latency over `runs` inferences after a warm-up, and each operator's part in it."""

    release: str
    model: str
    threads: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    runs: int
    operators: tuple[OperatorTime, ...]
    arena_bytes: int
    weights_bytes: int
    before: Conditions
    after: Conditions

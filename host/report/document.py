"""What a report says, as named types; the page holds it as JSON, schema edgekit.report/1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SCHEMA = "edgekit.report/1"
Source = Literal["field", "bench", "compile"]


@dataclass(frozen=True)
class Times:
    """Microseconds: the median, and what a tenth stays below and a tenth exceeds."""

    median: float
    p10: float
    p90: float


@dataclass(frozen=True)
class Operator:
    """An operator in running order: what it took, what was expected, and how it was decided.

    `start_us` is of the compiler's schedule; `nna`: what it costs there, or why it is elsewhere.
    `column` and `row` are its place in the drawn graph. None stands for what is not known.
    """

    name: str
    op: str
    kernel: str
    times: Times | None = None
    samples: int = 0
    estimate_us: float | None = None
    unit: str | None = None
    method: str | None = None
    rule: str | None = None
    why: str | None = None
    runner_up: str | None = None
    members: tuple[str, ...] = ()
    bytes: int | None = None
    start_us: float | None = None
    nna: str | None = None
    column: int = 0
    row: int = 0


@dataclass(frozen=True)
class BoardTimes:
    """One board's share of a release: its inferences, and each operator's median if it is told."""

    board: str
    batches: int
    inferences: int
    whole: Times
    throttled: float | None = None
    temperature_c: float | None = None
    operators: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class ReleaseTimes:
    """A release as boards ran it; `first` and `last` in seconds since 1970, by arrival. `nna` is
    the account of a run on the board's NNA, `hotspots` the lines of `bench model --hotspots`,
    `note` says what is wrong with its times."""

    release: str
    kit: str
    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]
    whole: Times | None = None
    estimate_us: float | None = None
    estimated_by: str | None = None
    explained: bool = False
    first: float | None = None
    last: float | None = None
    batches: int = 0
    inferences: int = 0
    throttled: float | None = None
    board_count: int = 0
    boards: tuple[BoardTimes, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    nna: tuple[str, ...] = ()
    hotspots: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True)
class Subject:
    """A model on one type of board, with its releases from the oldest to the newest."""

    model: str
    board_type: str
    threads: int
    variant: int
    releases: tuple[ReleaseTimes, ...]


@dataclass(frozen=True)
class FleetRelease:
    """A release on the boards that sent profiles of it last: `spread` of their medians, `slowest`
    of them in microseconds; `first` arrival in seconds since 1970."""

    release: str
    boards: int
    spread: Times
    slowest: float
    first: float


@dataclass(frozen=True)
class Straggler:
    """A board that is not as the others, and `why`: slow, older release, silent. `us` is its median
    and `ratio` that to the median of its peers; `heard` in seconds since 1970."""

    board: str
    release: str
    us: float
    ratio: float
    heard: float
    throttled: float | None
    temperature_c: float | None
    why: tuple[str, ...]


@dataclass(frozen=True)
class FleetGroup:
    """The boards of one type with one model; releases from the oldest to the newest, the most
    conspicuous stragglers first."""

    model: str
    board_type: str
    threads: int
    variant: int
    boards: int
    last: float
    releases: tuple[FleetRelease, ...]
    straggler_count: int
    stragglers: tuple[Straggler, ...]


@dataclass(frozen=True)
class Fleet:
    """The whole fleet, and the boards of the inventory that never sent a profile."""

    groups: tuple[FleetGroup, ...]
    missing_count: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All that a page shows; `made` is its day and time, `emulated` times say nothing of a board's
    latency, `left_out` is what had no room, `fleet` is there if it was asked for."""

    source: Source
    made: str
    kit: str
    subjects: tuple[Subject, ...]
    emulated: bool = False
    left_out: tuple[str, ...] = ()
    fleet: Fleet | None = None
    schema: str = SCHEMA

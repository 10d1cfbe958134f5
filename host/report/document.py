"""Types of a report document; the page embeds it as JSON, schema edgekit.report/1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SCHEMA = "edgekit.report/1"
Source = Literal["field", "bench", "compile"]


@dataclass(frozen=True)
class Times:
    """Microseconds: median, 10th and 90th percentile."""

    median: float
    p10: float
    p90: float


@dataclass(frozen=True)
class ReportedOperator:
    """An operator in execution order: its measured time, its estimate and the choice of method.

    `start_us` is its start in the compiler's schedule; `nna` is its cost on the NNA, or why it runs
    elsewhere. `column` and `row` are its position in the drawn graph. None means unknown.
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
    """One board's times of a release: of complete inferences, and the median of each operator if
    included."""

    board: str
    batches: int
    inferences: int
    whole: Times
    throttled: float | None = None
    temperature_c: float | None = None
    operators: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class ReleaseTimes:
    """A release as run on boards; `first` and `last` are arrival times in seconds since 1970. `nna`
    is the account of a run on the board's NNA, `hotspots` are the lines of `bench model
    --hotspots`, `note` is a caveat about the times, or
    what boards report of the release's accuracy."""

    release: str
    kit: str
    operators: tuple[ReportedOperator, ...]
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
class ModelReleases:
    """The releases of a model on one type of board, oldest first; `signature` of a model that has
    several."""

    model: str
    board_type: str
    threads: int
    variant: int
    releases: tuple[ReleaseTimes, ...]
    signature: str = ""


@dataclass(frozen=True)
class FleetRelease:
    """A release on the boards that last sent profiles of it: `spread` and `slowest` of their
    medians, in microseconds; `first` arrival in seconds since 1970."""

    release: str
    boards: int
    spread: Times
    slowest: float
    first: float


@dataclass(frozen=True)
class Straggler:
    """A board that differs from the others, and `why`: slow, older release, silent. `us` is its
    median and `ratio` that median relative to its peers'; `heard` in seconds since 1970."""

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
    """The boards of one type that run one model; releases oldest first, worst stragglers first."""

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
    """The fleet: counts of boards and of stragglers, each once however many models it runs, and the
    boards of the inventory that never sent a profile."""

    groups: tuple[FleetGroup, ...]
    boards: int
    straggler_count: int
    missing_count: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Contents of a report page. `made` is the date and time of creation; `emulated` times do not
    indicate a board's latency; `left_out` lists what was omitted for size; `fleet` is optional."""

    source: Source
    made: str
    kit: str
    subjects: tuple[ModelReleases, ...]
    emulated: bool = False
    left_out: tuple[str, ...] = ()
    fleet: Fleet | None = None
    schema: str = SCHEMA

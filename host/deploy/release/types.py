"""What a board answers, as named types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.device.runtime.agent.specs import LossSpec, PlacementSpec

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.hotspots import ThreadHotspots


@dataclass(frozen=True)
class Step:
    """Progress of a deploy: `state` of agent/states.py; `done` of `total` bytes sent.

    `release` is the one on its way, with an application that it is given.
    """

    state: str
    done: int = 0
    total: int = 0
    release: str = ""


OnStep = Callable[[Step], None]


@dataclass(frozen=True)
class PlannedFile:
    """A file of the release: to be sent, or skipped because the board has it."""

    path: str
    bytes: int
    sent: bool


@dataclass(frozen=True)
class DeployPlan:
    """What a deploy will do: `deploy` acts on this very object, `--dry-run` prints it.

    `states` are those it will pass (agent/states.py); only the first two if the release runs
    already (`unchanged`). `replaces` is the release that runs now, if one does. Memory is
    arena, state and weights; `memory_available_bytes` is None where the board does not tell.
    `application` is the release's, `left_application` that of the one before if this has none.
    """

    release: str
    replaces: str | None
    unchanged: bool
    states: tuple[str, ...]
    files: tuple[PlannedFile, ...]
    disk_needed_bytes: int
    disk_free_bytes: int
    memory_needed_bytes: int
    memory_available_bytes: int | None
    application: str = ""
    left_application: str = ""

    @property
    def send(self) -> tuple[str, ...]:
        """Paths of the files to send."""
        return tuple(f.path for f in self.files if f.sent)

    @property
    def skip(self) -> tuple[str, ...]:
        """Paths of the files that the board has already."""
        return tuple(f.path for f in self.files if not f.sent)

    @property
    def send_bytes(self) -> int:
        return sum(f.bytes for f in self.files if f.sent)

    @property
    def there_bytes(self) -> int:
        return sum(f.bytes for f in self.files if not f.sent)


@dataclass(frozen=True)
class Release:
    """A release in service. `changed` is False if it ran already; `previous` is what ran before.

    `state_ms` are the milliseconds of each state passed on the board, `health` what the golden
    check found there. `application` is the release's, `left_application` that of the one before
    if this has none.
    """

    id: str
    model: str
    changed: bool
    previous: str | None
    sent_bytes: int
    state_ms: Mapping[str, float]
    health: Mapping[str, Any]
    application: str = ""
    left_application: str = ""


@dataclass(frozen=True)
class ReleaseInfo:
    """An installed release, as the board describes it; `shapes` of its inputs, for each variant.

    `damage` says what is not as it was installed: such a release is never run. `placement` is where
    it runs unless told; None: on one thread, on any core. `loss`: what its fewer bits cost beside
    f32.
    """

    id: str
    model: str
    model_sha256: str
    profile: str
    kit_version: str
    counter: int
    bytes: int
    shapes: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    damage: str = ""
    placement: PlacementSpec | None = None
    loss: LossSpec | None = None


@dataclass(frozen=True)
class BoardStatus:
    """What runs, what ran before, and why the last release was rolled back, if one was.

    `deploying`: just now a deploy changes what runs. `interrupted`: it has not been committed.
    `named`: the same of each model that was deployed beside the default one.
    """

    current: ReleaseInfo | None
    previous: ReleaseInfo | None
    interrupted: bool
    deploying: bool
    last_failure: Mapping[str, Any] | None
    named: Mapping[str, BoardStatus] = field(default_factory=dict)


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
class Noise:
    """What a board saw beside a measurement: how many of its `cores` other programs kept busy,
    whether heat held the clock back, load average; None where the board does not tell."""

    cores: int
    others: float | None
    throttled: bool | None
    load: float | None


@dataclass(frozen=True)
class ModelHotspots:
    """What the board saw of the model's threads as they worked after the benchmark, and the bytes a
    second that as many threads read and write there when they copy large blocks."""

    seen: ThreadHotspots
    memory_bytes_per_second: float


@dataclass(frozen=True)
class Benchmark:
    """Latency over `runs` inferences after a warm-up, and each operator's part in it.

    `load_ms`: from opening the release to the end of the first inference, Python's start left out;
    None if the board's runtime does not say. `shapes` of the inputs; empty if it does not say.
    `cluster`: whose cores the threads were kept on, "" if they were not; `placement_note`: what of
    the release's placement the board could not give. `hotspots`: if they were asked for.
    """

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
    load_ms: float | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    noise: Noise | None = None
    cluster: str = ""
    placement_note: str = ""
    hotspots: ModelHotspots | None = None


@dataclass(frozen=True)
class ApplicationState:
    """How the application of a release is, as its supervisor said last.

    `state`: starting, running, waiting (to be started again), ended (by itself), stopped, or
    nothing. `said` is its own line, `failures` are those in a row, `last` says how it ended before.
    `boot` is who starts it at boot: systemd, cron or, empty, nobody; then a start script of the
    board's own needs `boot_line`, unless it is stopped.
    """

    state: str
    name: str
    release: str
    pid: int
    said: str
    failures: int
    restarts: int
    last: str
    boot: str = ""
    boot_line: str = ""

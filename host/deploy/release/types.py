"""A board's answers as named types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.device.runtime.agent.specs import LossSpec, PlacementSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgekit.device.runtime.agent.hotspots import ThreadHotspots

    Arrays = Mapping[str, NDArray[Any]]  # by the names of inputs or outputs


@dataclass(frozen=True)
class DeployProgress:
    """Progress of a deploy: a `state` of agent/states.py; `done` of `total` bytes sent.

    `release` is the one being deployed, including an application it keeps.
    """

    state: str
    done: int = 0
    total: int = 0
    release: str = ""


OnStep = Callable[[DeployProgress], None]


@dataclass(frozen=True)
class PlannedFile:
    """A file of the release: to be sent, or skipped because the board has it."""

    path: str
    bytes: int
    sent: bool


@dataclass(frozen=True)
class DeployPlan:
    """The actions of a deploy: `deploy` executes this very object, `--dry-run` prints it.

    `states` are the states it will pass (agent/states.py); only the first two if the release is
    already running (`unchanged`). `replaces` is the running release, if any. Memory is arena, state
    and weights; `memory_available_bytes` is None if the board does not report it. `application` is
    the release's; `left_application` is the previous release's if this one has none.
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
        """Paths of the files that the board already has."""
        return tuple(f.path for f in self.files if not f.sent)

    @property
    def send_bytes(self) -> int:
        return sum(f.bytes for f in self.files if f.sent)

    @property
    def there_bytes(self) -> int:
        return sum(f.bytes for f in self.files if not f.sent)


@dataclass(frozen=True)
class Release:
    """A deployed release. `changed` is False if it was already running; `previous` is the one
    before.

    `state_ms` are the milliseconds of each state passed on the board, `health` the result of the
    golden check there. `application` is the release's; `left_application` is the previous release's
    if this one has none.
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
    """An installed release, as reported by the board; `shapes` holds the input shapes of each
    variant, `signatures` the signature of each if the model has several.

    `damage` describes how it differs from the installed state; a damaged release is never run.
    `placement` is its default placement; None: one thread, on any core. `loss` is the quantization
    loss relative to f32.
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
    signatures: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardStatus:
    """The running and the previous release, and why the last one was rolled back, if it was.

    `deploying`: a deploy is changing the running release. `interrupted`: the running release is not
    committed yet. `named`: the status of each model deployed in addition to the default one.
    """

    current: ReleaseInfo | None
    previous: ReleaseInfo | None
    interrupted: bool
    deploying: bool
    last_failure: Mapping[str, Any] | None
    named: Mapping[str, BoardStatus] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorTime:
    """One operator of one run, or its median over a benchmark with its share of the total."""

    name: str
    op: str
    kernel: str
    median_us: float
    share: float


@dataclass(frozen=True)
class Timings:
    """Times of one inference."""

    release: str
    threads: int
    latency_ms: float
    operators: tuple[OperatorTime, ...]


@dataclass(frozen=True)
class ClockReadings:
    """The board's clock before and after a benchmark; None where it is not readable."""

    governor: str | None
    frequency_mhz: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class Noise:
    """Background activity during a measurement: the number of `cores` kept busy by other programs,
    thermal throttling, load average; None where the board does not report it."""

    cores: int
    others: float | None
    throttled: bool | None
    load: float | None


@dataclass(frozen=True)
class ModelHotspots:
    """Samples of the model's threads taken after the benchmark, and the bytes per second that as
    many threads read and write when copying large blocks."""

    seen: ThreadHotspots
    memory_bytes_per_second: float


@dataclass(frozen=True)
class Benchmark:
    """Latency over `runs` inferences after a warm-up, and each operator's share.

    `load_ms`: from opening the release to the end of the first inference, excluding Python's
    startup; None if the board's runtime does not report it. `shapes` of the inputs; empty if not
    reported. `signature`: of a model that has several. `cluster`: the core cluster the threads were
    pinned to, "" if none; `placement_note`: the part of the release's placement that the board
    could not provide. `hotspots`: if requested.
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
    before: ClockReadings
    after: ClockReadings
    load_ms: float | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    noise: Noise | None = None
    signature: str = ""
    cluster: str = ""
    placement_note: str = ""
    hotspots: ModelHotspots | None = None


@dataclass(frozen=True)
class ApplicationState:
    """The state of a release's application, as last reported by its supervisor.

    `state`: starting, running, waiting (for a restart), ended (by itself), stopped, or nothing (not
    installed). `said` is the application's own status line, `failures` counts consecutive failures,
    `last` describes how it previously ended, `denied` which scheduler, priority or cores the board
    did not give it, `failure` the release that was rolled back because its application failed,
    until another one succeeds. `boot` starts it at boot: systemd, cron, or empty for nothing; in
    the last case the board's own start script needs `boot_line`, unless the application is
    stopped.
    """

    state: str
    name: str
    release: str
    pid: int
    said: str
    failures: int
    restarts: int
    last: str
    failure: str = ""
    boot: str = ""
    boot_line: str = ""
    denied: str = ""


@dataclass(frozen=True)
class InstructionCount:
    """Instructions of one inference on one thread, on the golden input.

    `user_only`: kernel instructions are excluded. `samples` are the individual measurements.
    """

    release: str
    model: str
    per_inference: int
    user_only: bool
    samples: tuple[int, ...]

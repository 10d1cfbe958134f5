"""Schemas of the board runtime's answers, by command; anything else is rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from edgekit.host.common.decode import Count, Number, Text, fitting, parsed
from edgekit.host.deploy.release.probe_answers import ProbeAnswer, Time

Document = dict[str, Any]

Id = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
Shapes = dict[Text, tuple[Count, ...]]


class PlacementSpecAnswer(TypedDict):
    cluster: Text
    core: Text
    threads: Count
    cost_us: Number
    alone_us: Number


class LossAnswer(TypedDict):
    cosine: Number
    off: Number


class ErrorAnswer(TypedDict):
    kind: Text
    message: Text
    log: NotRequired[Text]
    holder: NotRequired[Text]


class TrustAnswer(TypedDict):
    keys: tuple[Text, ...]
    unsigned: bool


class FilesAnswer(TypedDict):
    release: Id
    current: Id | None
    unchanged: bool
    send: tuple[Text, ...]
    disk_needed_bytes: Count


class PlanAnswer(TypedDict):
    probe: ProbeAnswer
    trust: TrustAnswer
    application: Text
    plan: FilesAnswer | None


class PreviewAnswer(TypedDict):
    probe: ProbeAnswer
    application: Text
    current: Id | None
    plan: FilesAnswer | None


class StateAnswer(TypedDict):
    state: Text
    ms: Time


class HealthAnswer(TypedDict):
    ms: NotRequired[Time]
    loss: NotRequired[LossAnswer]
    max_difference: NotRequired[tuple[float, ...]]


class OutcomeAnswer(TypedDict):
    end: Text
    release: Id
    previous: Id | None
    states: NotRequired[tuple[StateAnswer, ...]]
    health: NotRequired[HealthAnswer]


class RemoveAnswer(TypedDict):
    releases: tuple[Id, ...]


class AppAnswer(TypedDict):
    state: Text
    name: Text
    release: Text
    pid: Count
    said: Text
    failures: Count
    restarts: Count
    last: Text
    denied: NotRequired[Text]
    failure: Text
    boot: Text
    boot_line: Text


class AppLogAnswer(TypedDict):
    lines: tuple[Text, ...]


class ReleaseAnswer(TypedDict):
    id: Id
    model: Text
    model_sha256: Text
    profile: Text
    kit_version: Text
    counter: Count
    bytes: Count
    shapes: tuple[Shapes, ...]
    damage: Text
    placement: PlacementSpecAnswer | None
    loss: LossAnswer | None
    signatures: NotRequired[tuple[Text, ...]]


class FailureAnswer(TypedDict):
    """A board file that a power cut may have filled with garbage."""

    release: NotRequired[Text | None]
    reason: NotRequired[Text]
    log: NotRequired[Text]


class OneStatus(TypedDict):
    current: ReleaseAnswer | None
    previous: ReleaseAnswer | None
    interrupted: bool
    deploying: bool
    last_failure: FailureAnswer | None


class StatusAnswer(OneStatus):
    named: dict[Text, OneStatus]


class RunOperator(TypedDict):
    name: Text
    op: Text
    kernel: Text
    us: Time


class RunAnswer(TypedDict):
    release: Id
    threads: Count
    latency_ms: Time
    operators: tuple[RunOperator, ...]


class LatencyAnswer(TypedDict):
    median: Time
    p10: Time
    p90: Time
    n: Count


class BenchOperator(TypedDict):
    name: Text
    op: Text
    kernel: Text
    median_us: Time
    share: Number


class ConditionsAnswer(TypedDict):
    governor: Text | None
    frequency_mhz: Number | None
    temperature_c: Number | None


class BeforeAndAfter(TypedDict):
    before: ConditionsAnswer
    after: ConditionsAnswer


class NoiseAnswer(TypedDict):
    cores: Count
    others: Number | None
    throttled: bool | None
    load: Number | None


class QuietAnswer(NoiseAnswer):
    governor: Text | None


class PlacementAnswer(TypedDict):
    cluster: Text
    note: Text


class HotFunctionAnswer(TypedDict):
    percent: Number
    name: Text


class HotInstructionAnswer(TypedDict):
    percent: Number
    text: Text


class ThreadAnswer(TypedDict):
    running: Number
    delayed: Number | None
    asleep: Number
    samples: Count
    waiting: Number


class OtherProgramAnswer(TypedDict):
    process: Count
    name: Text
    percent: Number


class ThreadHotspotsAnswer(TypedDict):
    sampler: Text
    threads: tuple[ThreadAnswer, ...]
    functions: tuple[HotFunctionAnswer, ...]
    instructions: tuple[HotInstructionAnswer, ...]
    others: tuple[OtherProgramAnswer, ...]
    kernel: Number
    minor_faults: Number
    major_faults: Number
    waiting: dict[Text, Count] | None
    missing: tuple[Text, ...]
    memory_bytes_per_second: Annotated[float, Meta(gt=0, le=1e15)]


class BenchAnswer(TypedDict):
    release: Id
    model: Text
    threads: Count
    latency_ms: LatencyAnswer
    operators: tuple[BenchOperator, ...]
    arena_bytes: Count
    weights_bytes: Count
    conditions: BeforeAndAfter
    load_ms: Time
    shapes: Shapes
    noise: NoiseAnswer
    placement: PlacementAnswer
    hotspots: NotRequired[ThreadHotspotsAnswer]


class ProfileAnswer(TypedDict):
    on: bool
    spool: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    through: Count
    left: Count
    dropped: Count
    quarantined: Count
    sender: NotRequired[Text]
    data: Annotated[str, Meta(max_length=16 << 20)]


class CountAnswer(TypedDict):
    release: Id
    model: Text
    per_inference: Count
    user_only: bool
    samples: tuple[Count, ...]


class CostAnswer(TypedDict):
    median_us: Annotated[float, Meta(gt=0, le=1e15)]
    p10_us: Time
    p90_us: Time


class GemmAnswer(TypedDict):
    """One product of gemm-bench; without an error one of the next two is present as well."""

    index: Count
    error: NotRequired[ErrorAnswer]


class GemmTimes(TypedDict):
    default: CostAnswer
    times: tuple[CostAnswer, ...]
    cpu: Text


class GemmCounts(TypedDict):
    default: Number
    instructions: tuple[Number, ...]


class FeaturesAnswer(TypedDict):
    stored: Text
    rows: Count
    cols: Count
    nonzeros: Count
    mean: Number
    deviation: Number
    longest: Count
    span: Number


class FormAnswer(TypedDict):
    settings: dict[str, Any]  # validated by BlockSettings
    padding: Number
    bytes: Count
    instructions: NotRequired[Number]
    time: NotRequired[CostAnswer]


class BottleneckAnswer(TypedDict):
    kind: Text
    why: Text


class HotspotsAnswer(TypedDict):
    bottleneck: BottleneckAnswer
    functions: tuple[HotFunctionAnswer, ...]
    instructions: tuple[HotInstructionAnswer, ...]
    missing: tuple[Text, ...]


class SpmvAnswer(TypedDict):
    features: FeaturesAnswer
    height: Count
    triad_bytes_per_second: Number | None
    results: tuple[FormAnswer, ...]


class SpmvHotspots(TypedDict):
    hotspots: HotspotsAnswer


class FetchStartAnswer(TypedDict):
    boot: Text
    started: bool
    line: Text


class AnyAnswer(TypedDict):
    """Any answer: for callers that ignore the content, or that know which of several types it
    is."""


ANSWERS: Mapping[str, type] = {
    "probe": ProbeAnswer,
    "plan": PlanAnswer,
    "apply": OutcomeAnswer,
    "activate": OutcomeAnswer,
    "preview": PreviewAnswer,
    "rollback": OutcomeAnswer,
    "report-failure": AnyAnswer,  # called by programs on the board
    "placement": AnyAnswer,  # called by programs on the board
    "repeat": AnyAnswer,  # called by programs on the board
    "remove": RemoveAnswer,
    "status": StatusAnswer,
    "verify": StatusAnswer,
    "release": AnyAnswer,  # the answer is that of the wrapped command
    "enroll": TrustAnswer,
    "leave": AnyAnswer,
    "health": AnyAnswer,
    "golden": AnyAnswer,
    "run": RunAnswer,
    "serve-session": AnyAnswer,  # answers are JSON only for errors; otherwise it sends messages
    "bench": BenchAnswer,
    "noise": QuietAnswer,
    "profile": ProfileAnswer,
    "push-profiles": AnyAnswer,
    "fetch-releases": AnyAnswer,  # called by programs on the board
    "fetch-start": FetchStartAnswer,
    "count": CountAnswer,
    "gemm-bench": AnyAnswer,
    "spmv-bench": AnyAnswer,
    "spmm-bench": AnyAnswer,
    "outlier-bench": AnyAnswer,
    "app-start": AppAnswer,
    "app-stop": AppAnswer,
    "app-status": AppAnswer,
    "app-log": AppLogAnswer,
    "app-supervise": AnyAnswer,
}


class _Envelope(TypedDict):
    error: NotRequired[ErrorAnswer | None]


def decode_answer(content: bytes, command: str) -> tuple[Document, ErrorAnswer | None]:
    """Decodes a command's answer, or the runtime's error; raises NotAnAnswerError."""
    document = parsed(content)
    if error := fitting(document, _Envelope).get("error"):
        return {}, error
    return fitting(document, ANSWERS[command]), None

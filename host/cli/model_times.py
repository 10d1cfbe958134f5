"""One JSON document for a model's times on a board, measured or estimated.

A reader of one kind of times can read the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.host.deploy.release import Benchmark
    from edgekit.host.simulator.model import ModelEstimate, OperatorEstimate
    from edgekit.host.simulator.run import SimulatedCost

_SCHEMA = "edgekit.bench.model/1"


@dataclass(frozen=True, kw_only=True)
class _Operator:
    name: str
    op: str
    kernel: str
    median_us: float
    share: float
    cycles: int | None = None
    instructions: int | None = None
    bound: Mapping[str, int] | None = None
    multiply_adds: int | None = None
    of_peak: float | None = None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Document:
    """None means unknown: only one of the three kinds of times is set. `estimate` is the estimate
    for a real core, next to an emulator's times; `nna` is the account of a run on the board's NNA,
    as in `compile --explain`; `variants` are documents for further shapes and signatures."""

    board: str
    model: str
    release: str
    threads: int
    emulated: bool = False
    estimated: bool = False
    latency_ms: Mapping[str, float] | None = None
    emulated_ms: Mapping[str, float] | None = None
    estimated_ms: Mapping[str, float] | None = None
    load_ms: float | None = None
    emulated_load_ms: float | None = None
    operators: Sequence[_Operator] = ()
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    signature: str = ""
    arena_bytes: int
    weights_bytes: int
    state_bytes: int | None = None
    noise: Mapping[str, Any] | None = None
    noisy: str | None = None
    conditions: Mapping[str, Any] | None = None
    core: str | None = None
    clock_mhz: float | None = None
    kind: str | None = None
    cycles: int | None = None
    instructions: int | None = None
    bound: Mapping[str, int] | None = None
    unmodelled_instructions: int | None = None
    validated: bool | None = None
    error: Mapping[str, Any] | None = None
    peers: Mapping[str, Any] = field(default_factory=dict)
    estimate: Mapping[str, Any] | None = None
    nna: Mapping[str, Any] | None = None
    variants: Sequence[Mapping[str, Any]] = ()
    hotspots: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        operators = [asdict(operator) for operator in self.operators]
        return {"schema": _SCHEMA, **known, "operators": operators}


def measured_document(
    board: str,
    timing: Benchmark,
    emulated: bool,
    *,
    peers: Mapping[str, Any] | None = None,
    estimate: Mapping[str, Any] | None = None,
    nna: Mapping[str, Any] | None = None,
    variants: Sequence[Mapping[str, Any]] = (),
    hotspots: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of a benchmark; emulated times are labeled as such. `peers` maps names to times
    in the format of PeerTimes."""
    from edgekit.host.deploy.release import why_noisy

    times = _times_to_json(timing.median_ms, timing.p10_ms, timing.p90_ms, timing.runs)
    return _Document(
        board=board,
        model=timing.model,
        release=timing.release,
        threads=timing.threads,
        emulated=emulated,
        latency_ms=None if emulated else times,
        emulated_ms=times if emulated else None,
        load_ms=None if emulated else timing.load_ms,
        emulated_load_ms=timing.load_ms if emulated else None,
        operators=[_Operator(**asdict(operator)) for operator in timing.operators],
        shapes=dict(timing.shapes),
        signature=timing.signature,
        arena_bytes=timing.arena_bytes,
        weights_bytes=timing.weights_bytes,
        noise=asdict(timing.noise) if timing.noise else None,
        noisy=None if emulated else why_noisy(timing),
        conditions={"before": asdict(timing.before), "after": asdict(timing.after)},
        peers=dict(peers or {}),
        estimate=estimate,
        nna=nna,
        variants=variants,
        hotspots=hotspots,
    ).to_json()


def model_document(
    found: ModelEstimate,
    peers: Mapping[str, Any] | None = None,
    judged: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The document of an estimate, which has no load time and no noise; `judged` has multiply-adds,
    share of the peak, and advice by operator."""
    from edgekit.host.simulator.report import error_document

    total = found.total_ms
    return _Document(
        board=found.board,
        model=found.model,
        release=found.release,
        threads=found.threads,
        estimated=True,
        estimated_ms=_times_to_json(total, total, total, 1),
        operators=[
            _operator_estimate(found, o, (judged or {}).get(o.spec.name, {}))
            for o in found.operators
        ],
        shapes={name: list(shape) for name, shape in found.shapes.items()},
        signature=found.signature,
        arena_bytes=found.arena_bytes,
        weights_bytes=found.weights_bytes,
        state_bytes=found.state_bytes,
        core=found.core,
        clock_mhz=found.clock_mhz,
        kind=found.kind,
        **_cost_to_json(found.cost),
        unmodelled_instructions=found.unmodelled,
        **error_document(found.proof),
        peers=dict(peers or {}),
    ).to_json()


def _times_to_json(median: float, p10: float, p90: float, count: int) -> dict[str, float]:
    return {"median": median, "p10": p10, "p90": p90, "n": count}


def _operator_estimate(
    found: ModelEstimate, operator: OperatorEstimate, judged: Mapping[str, Any]
) -> _Operator:
    cost = operator.cost
    return _Operator(
        **operator.spec.__dict__,
        median_us=1e3 * found.milliseconds(cost.cycles),
        share=cost.cycles / (found.cost.cycles or 1),
        **_cost_to_json(cost),
        **judged,
    )


def _cost_to_json(cost: SimulatedCost) -> dict[str, Any]:
    from edgekit.host.simulator.report import cost_document

    return cost_document(cost)

"""Reports of one run: a benchmark, or what the compiler expects of a model it just compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from edgekit.device.version import VERSION
from edgekit.host.estimate.model import ModelEstimate
from edgekit.host.explanations import recall
from edgekit.host.release import Benchmark
from edgekit.host.report.document import (
    BoardTimes,
    Operator,
    ReleaseTimes,
    Report,
    Subject,
    Times,
)
from edgekit.host.report.explained import (
    explain_operators,
    known_estimate,
    operators_of,
    variant_of,
)


def bench_report(
    board: str,
    board_type: str,
    timings: Sequence[Benchmark],
    now: datetime,
    *,
    emulated: bool = False,
    estimate: ModelEstimate | None = None,
) -> Report:
    """What a benchmark found: of the first shapes of a model, and of its others. `estimate` is of
    the first."""
    subjects = []
    for variant, timing in enumerate(timings):
        found = estimate if variant == 0 and estimate else None
        found = found or known_estimate(timing.release, board_type, timing.threads, variant)
        operators = [
            Operator(o.name, o.op, o.kernel, _alike(o.median_us), timing.runs)
            for o in timing.operators
        ]
        document = variant_of(recall(timing.release), variant)
        explained = explain_operators(operators, document, found)
        whole = Times(*(1e3 * t for t in (timing.median_ms, timing.p10_ms, timing.p90_ms)))
        medians = tuple(o.median_us for o in timing.operators)
        release = ReleaseTimes(
            timing.release,
            VERSION,
            explained.operators,
            explained.edges,
            whole,
            explained.estimate_us,
            explained.estimated_by,
            explained.known,
            inferences=timing.runs,
            board_count=1,
            boards=(BoardTimes(board, 1, timing.runs, whole, operators=medians),),
            memory={"arena": timing.arena_bytes, "weights": timing.weights_bytes},
        )
        subjects.append(Subject(timing.model, board_type, timing.threads, variant, (release,)))
    return Report("bench", _day(now), VERSION, tuple(subjects), emulated)


def compile_report(
    release: str, board_type: str, documents: Sequence[Mapping[str, Any]], now: datetime
) -> Report:
    """What is expected of a model, by its explanations, one for each of its shapes."""
    subjects = []
    for variant, document in enumerate(documents):
        found = known_estimate(release, board_type, 1, variant)
        explained = explain_operators(operators_of(document), document, found)
        memory = document["memory"]
        times = ReleaseTimes(
            release,
            VERSION,
            explained.operators,
            explained.edges,
            None,
            explained.estimate_us,
            explained.estimated_by,
            explained.known,
            memory={"arena": memory["arena_bytes"], "weights": memory["weights_bytes"]},
        )
        subjects.append(Subject(document["model"], board_type, 1, variant, (times,)))
    return Report("compile", _day(now), VERSION, tuple(subjects))


def _day(now: datetime) -> str:
    return now.strftime("%Y-%m-%d %H:%M")


def _alike(median: float) -> Times:
    return Times(median, median, median)

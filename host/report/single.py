"""Reports of a single benchmark run or of the estimates for a freshly compiled model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from edgekit.device.version import VERSION
from edgekit.host.deploy.explanations import recall, variant_of
from edgekit.host.deploy.release import Benchmark, why_noisy
from edgekit.host.report.document import (
    BoardTimes,
    ModelReleases,
    ReleaseTimes,
    Report,
    ReportedOperator,
    Times,
)
from edgekit.host.report.explained import (
    explain_operators,
    known_estimate,
    operators_of,
)


def bench_report(
    board: str,
    board_type: str,
    runs: Sequence[Sequence[Benchmark]],
    now: datetime,
    emulated: bool = False,
    hotspots: Sequence[Sequence[str]] = (),
) -> Report:
    """Report of benchmarks of several models, each with all of its shapes; `hotspots` are the
    output lines for each model's first shape."""
    lines = hotspots or [()] * len(runs)
    subjects = (
        ModelReleases(
            t.model,
            board_type,
            t.threads,
            variant,
            (_release_times(board, board_type, t, variant, emulated, () if variant else hot),),
            t.signature,
        )
        for timings, hot in zip(runs, lines, strict=True)
        for variant, t in enumerate(timings)
    )
    return Report("bench", _format_date(now), VERSION, tuple(subjects), emulated)


def _release_times(
    board: str,
    board_type: str,
    timing: Benchmark,
    variant: int,
    emulated: bool,
    hotspots: Sequence[str],
) -> ReleaseTimes:
    operators = [
        ReportedOperator(o.name, o.op, o.kernel, _constant_times(o.median_us), timing.runs)
        for o in timing.operators
    ]
    document = variant_of(recall(timing.release), variant)
    estimate = known_estimate(timing.release, board_type, timing.threads, variant)
    explained = explain_operators(operators, document, estimate)
    whole = Times(*(1e3 * t for t in (timing.median_ms, timing.p10_ms, timing.p90_ms)))
    medians = tuple(o.median_us for o in timing.operators)
    return ReleaseTimes(
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
        nna=explained.nna,
        hotspots=tuple(" ".join(line.split()) for line in hotspots),
        note=_noise_note(timing, emulated),
    )


def _noise_note(timing: Benchmark, emulated: bool) -> str | None:
    if emulated:
        return "Emulator times say nothing about a real board."
    why = why_noisy(timing)
    return f"Noisy measurement: {why}." if why else None


def compile_report(
    release: str, board_type: str, documents: Sequence[Mapping[str, Any]], now: datetime
) -> Report:
    """Report of the estimates for a model, from one explanation per shape."""
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
            nna=explained.nna,
        )
        key = (document["model"], board_type, 1, variant)
        subjects.append(ModelReleases(*key, (times,), document.get("signature", "")))
    return Report("compile", _format_date(now), VERSION, tuple(subjects))


def _format_date(now: datetime) -> str:
    return now.strftime("%Y-%m-%d %H:%M")


def _constant_times(median: float) -> Times:
    return Times(median, median, median)

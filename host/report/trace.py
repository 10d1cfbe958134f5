"""Exports a report as a Chrome trace, for Perfetto, speedscope and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from edgekit.host.report.document import ModelReleases, ReleaseTimes, Report, ReportedOperator


def trace(report: Report) -> bytes:
    """One inference of each release, its operators placed end to end by their median times. Each
    model on a type of board is a trace process, each release a thread. Boards with an NNA get
    another process that shows the compiler's schedule, with a thread per unit."""
    events = [
        event
        for process, subject in enumerate(report.subjects, 1)
        for event in _subject_events(process, subject, report)
    ]
    scheduled = [s for s in report.subjects if any(release.nna for release in s.releases)]
    for process, subject in enumerate(scheduled, len(report.subjects) + 1):
        events += _schedule_events(process, subject)
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"kit": report.kit, "made": report.made, "times": _kind_of_times(report)},
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _subject_events(
    process: int, subject: ModelReleases, report: Report
) -> Iterator[dict[str, Any]]:
    yield _metadata_event("process_name", process, 0, _subject_title(subject))
    for number, release in enumerate(subject.releases, 1):
        yield _metadata_event(
            "thread_name", process, number, f"release {release.release}, {_kind_of_times(report)}"
        )
        yield from _inference_events(process, number, release)


def _subject_title(subject: ModelReleases) -> str:
    threads = f"{subject.threads} thread{'s' * (subject.threads != 1)}"
    shape = f", shapes {subject.variant + 1}" if subject.variant else ""
    shape = f", {subject.signature}" if subject.signature else shape
    return f"{subject.model} on {subject.board_type}, {threads}{shape}"


def _schedule_events(process: int, subject: ModelReleases) -> Iterator[dict[str, Any]]:
    """The schedule of the newest release per unit, according to the compiler's cost model."""
    release = subject.releases[-1]
    yield _metadata_event("process_name", process, 0, f"{_subject_title(subject)}, as scheduled")
    units = list(dict.fromkeys(o.unit for o in release.operators if o.unit is not None))
    for thread, unit in enumerate(units, 1):
        yield _metadata_event("thread_name", process, thread, f"{unit}, by the cost model")
    for operator in release.operators:
        if operator.unit is None or operator.start_us is None:
            continue
        thread = units.index(operator.unit) + 1
        yield _duration_event(
            process, thread, operator, operator.start_us, operator.estimate_us or 0.0
        )


def _inference_events(process: int, thread: int, release: ReleaseTimes) -> Iterator[dict[str, Any]]:
    start = 0.0
    for operator in release.operators:
        took = operator.times.median if operator.times else operator.estimate_us or 0.0
        yield _duration_event(process, thread, operator, start, took)
        start += took


def _duration_event(
    process: int, thread: int, operator: ReportedOperator, start: float, took: float
) -> dict[str, Any]:
    return {
        "name": operator.name,
        "cat": operator.op,
        "ph": "X",
        "ts": round(start, 3),
        "dur": round(took, 3),
        "pid": process,
        "tid": thread,
        "args": _event_arguments(operator),
    }


def _event_arguments(operator: ReportedOperator) -> dict[str, Any]:
    known = {
        "kernel": operator.kernel,
        "samples": operator.samples or None,
        "p90_us": operator.times.p90 if operator.times and operator.samples else None,
        "estimate_us": operator.estimate_us,
        "rule": operator.rule,
        "runner_up": operator.runner_up,
        "nna": operator.nna,
    }
    return {key: value for key, value in known.items() if value is not None}


def _metadata_event(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _kind_of_times(report: Report) -> str:
    """The kind of times in the report."""
    if report.source == "compile":
        return "estimated"
    return "emulated" if report.emulated else "medians"

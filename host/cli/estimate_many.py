"""`edgekit estimate` for several models or boards, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.host.cli.many import check_all, flags, pool_for, sent, sent_under

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.lab.jobs.task import Sent, Task, TaskReport
    from edgekit.host.report.estimates import BoardEngines, EngineTime

OURS = "edgekit"


def tasks_of(
    model: Path, options: Sequence[str], samples: Path | None
) -> Callable[[str, PlacementRequest], Task]:
    """A function that makes the task of estimating `model` on a board with a placement; `samples`
    are sent with each task."""
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.lab.jobs.task import Task

    word, files = sent(model)
    given: list[str | Sent] = []
    if samples is not None:
        name, more = sent_under("samples", samples)
        given, files = ["--samples", name], files | more

    def task_on(board: str, request: PlacementRequest) -> Task:
        placed = flags(threads=request.threads, cluster=request.cluster or None)
        # Workers need not have the board in their inventory, so send its profile.
        words = ("--board", profile_of(board), *placed, *options, *given, "--json")
        return Task(("estimate", word, *words), board, files)

    return task_on


@dataclass
class _Asked:
    """One model on one board, and its report once available."""

    model: Path
    board: str
    task: Task
    report: TaskReport | None = None

    @property
    def name(self) -> str:
        return f"{self.model.name} on {self.board}"


def estimate_many(
    models: Sequence[Path],
    requests: Mapping[str, PlacementRequest],
    options: Sequence[str],
    samples: Path | None,
    dask: str | None,
    page_file: Path | None,
    as_json: bool,
) -> None:
    """Estimates each model on each board with its placement, as workers become free, and writes
    the page `page_file`; raises an error if any failed. `samples` are sent with each task."""
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import counting
    from edgekit.host.lab.jobs.pool import work_off

    asked = []
    for model in models:
        task_on = tasks_of(model, options, samples)
        asked += [_Asked(model, b, task_on(b, request)) for b, request in requests.items()]
    waiting = {id(a.task): a for a in asked}
    done = 0
    with pool_for(dask) as pool, counting("estimating") as tell:

        def then(task: Task, report: TaskReport) -> None:
            nonlocal done
            waiting[id(task)].report = report
            done += 1
            tell(done, len(asked))

        work_off(pool, [a.task for a in asked], then)
    if page_file is not None:
        _write_page(page_file, asked)
    if as_json:
        emit({"schema": "edgekit.estimate.many/1", "estimates": [_to_json(a) for a in asked]})
    else:
        _print_table(asked)
    check_all([(a.name, a.report) for a in asked])


def _to_json(asked: _Asked) -> dict[str, Any]:
    report = asked.report
    return {
        "file": asked.model.name,
        "board": asked.board,
        "code": report.code if report else None,
        "error": report.message if report and report.code else None,
        "worker": report.worker if report else None,
        "result": report.document if report else None,
    }


def _print_table(asked: Sequence[_Asked]) -> None:
    from edgekit.host.cli.output import milliseconds, table
    from edgekit.host.simulator.report import error_text
    from edgekit.kb.targets.core_parts import Validation

    found = [(a, a.report.document) for a in asked if a.report and a.report.document]
    peers = any(document["peers"] for _, document in found)
    rows, missing = [], []
    for a, d in found:
        error = error_text(Validation(**d["error"]) if d["error"] else None)
        times, without = _engines(d)
        missing += [f"no {name} on {a.board}: {why}" for name, why in without]
        for time in times:
            ratio = "" if time.engine == OURS else f"{time.ratio:.2f}"
            engine = (time.engine, ratio) if peers else ()
            shown = (a.model.name, a.board, milliseconds(time.milliseconds), error)
            rows.append((*shown, str(d["threads"]), *engine))
    heads = ["model", "board", "estimated ms", "error", "threads"]
    order = list(range(len(heads)))
    if peers:
        heads += ["engine", "edgekit is faster by"]
        order = [1, 5, 2, 3, 4, 6]
        if len({a.model for a in asked}) > 1:
            order.insert(0, 0)
    if rows:
        shown_rows = [[row[i] for i in order] for row in rows]
        table([heads[i] for i in order], shown_rows, left=len(order) - 3 - peers)
    for line in missing:
        print(line)
    for a in asked:
        if a.report and a.report.code:
            print(f"failed  {a.name}: {a.report.message}")


def _engines(document: Mapping[str, Any]) -> tuple[list[EngineTime], list[tuple[str, str]]]:
    """The times of a document, ours first, and the engines without one, with the reasons."""
    from edgekit.host.report.estimates import EngineTime

    error = document["error"]["median_percent"] if document["error"] else None
    times = [EngineTime(OURS, document["estimated_ms"]["median"], error, 1.0)]
    missing = []
    for name, peer in document["peers"].items():
        if peer["estimated_ms"] is None:
            missing.append((name, peer["missing"]))
        else:
            half = " f16" if peer["precision"] == "f16" else ""
            label = f"{name} {peer['version']}{half}"
            times.append(EngineTime(label, peer["estimated_ms"], error, peer["ratio"]))
    return times, missing


def _write_page(file: Path, asked: Sequence[_Asked]) -> None:
    from edgekit.device.version import VERSION
    from edgekit.host.cli.pages import utc_now
    from edgekit.host.common.files import atomic_write
    from edgekit.host.report.estimates import estimates_page

    made = f"edgekit {VERSION}, {utc_now():%Y-%m-%d %H:%M} UTC"
    atomic_write(file, estimates_page([_on_page(a) for a in asked], made).encode())


def _on_page(asked: _Asked) -> BoardEngines:
    from edgekit.host.cli.compile import threads_text
    from edgekit.host.report.estimates import BoardEngines
    from edgekit.host.simulator.report import proof_text
    from edgekit.kb.targets.core_parts import Validation

    report = asked.report
    if report is None or report.document is None:
        why = report.message if report else "not begun"
        return BoardEngines(asked.model.name, asked.board, why, ())
    d = report.document
    proof = proof_text(Validation(**d["error"]) if d["error"] else None)
    core = f"{d['core']} at {d['clock_mhz']:g} MHz, {threads_text(d['threads'])}"
    times, missing = _engines(d)
    without = tuple(f"{name}: {why}" for name, why in missing)
    return BoardEngines(
        asked.model.name, asked.board, f"{core}; error: {proof}", tuple(times), without
    )

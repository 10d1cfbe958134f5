"""`edgekit estimate` for several models or boards, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.host.cli.many import check_all, flags, pool_for, sent, sent_under

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.lab.jobs.task import Report, Sent, Task


@dataclass
class _Asked:
    """One model on one board, and its report once available."""

    model: Path
    board: str
    task: Task
    report: Report | None = None

    @property
    def name(self) -> str:
        return f"{self.model.name} on {self.board}"


def estimate_many(
    models: Sequence[Path],
    requests: Mapping[str, PlacementRequest],
    options: Sequence[str],
    samples: Path | None,
    dask: str | None,
    as_json: bool,
) -> None:
    """Estimates each model on each board with its placement, as workers become free; raises an
    error if any failed. `samples` are sent with each task."""
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import counting
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.lab.jobs.pool import work_off
    from edgekit.host.lab.jobs.task import Task

    given: list[str | Sent] = []
    sample_files: dict[str, bytes] = {}
    if samples is not None:
        name, sample_files = sent_under("samples", samples)
        given = ["--samples", name]
    asked = []
    for model in models:
        word, files = sent(model)
        files |= sample_files
        for board, request in requests.items():
            more = flags(threads=request.threads, cluster=request.cluster or None)
            # Workers need not have the board in their inventory, so send its profile.
            words = ("--board", profile_of(board), *more, *options, *given, "--json")
            task = Task(("estimate", word, *words), board, files)
            asked.append(_Asked(model, board, task))
    waiting = {id(a.task): a for a in asked}
    done = 0
    with pool_for(dask) as pool, counting("estimating") as tell:

        def then(task: Task, report: Report) -> None:
            nonlocal done
            waiting[id(task)].report = report
            done += 1
            tell(done, len(asked))

        work_off(pool, [a.task for a in asked], then)
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

    rows = []
    for a in asked:
        if a.report and (d := a.report.document):
            proof = Validation(**d["error"]) if d["error"] else None
            time = milliseconds(d["estimated_ms"]["median"])
            rows.append((a.model.name, a.board, time, error_text(proof), str(d["threads"])))
    if rows:
        table(("model", "board", "estimated ms", "error", "threads"), rows, left=2)
    for a in asked:
        if a.report and a.report.code:
            print(f"failed  {a.name}: {a.report.message}")

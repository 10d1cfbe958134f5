"""`edgekit choose`: ranks the boards on which a model is fast enough, by estimated time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.compile_options import takes_compile_options, words_of
from edgekit.host.cli.many import Workers, boards_of, check_all, pool_for
from edgekit.host.cli.options import (
    FileKind,
    Json,
    ModelOnly,
    examples,
    file_kind,
    model_file,
    writes,
)
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.lab.jobs.task import Task, TaskReport
    from edgekit.kb.targets.board import BoardProfile
    from edgekit.kb.targets.core_parts import Validation

_SUFFIXES = (".csv", ".json")
_LESS_IMPORTANT = (4, 7)  # columns: inferences per second, memory of the board

_Fps = Annotated[
    float | None,
    typer.Option(
        "--fps", metavar="RATE", show_default=False, help="Inferences per second to reach."
    ),
]
_Within = Annotated[
    float | None,
    typer.Option(
        "--within", metavar="MS", show_default=False, help="Milliseconds an inference may take."
    ),
]
_Boards = Annotated[
    str | None,
    typer.Option(
        "--boards",
        metavar="BOARD,BOARD",
        show_default=False,
        autocompletion=complete.boards,
        help="Boards or profiles to choose from (default: all profiles of real boards).",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        parser=writes("boards.csv"),
        metavar="FILE.csv|.json",
        show_default=False,
        help="Also write the result to a file.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "choose",
        epilog=examples(
            "edgekit choose models/face_detection_short_range.tflite --fps 30",
            "edgekit choose model.onnx --within 20 --precision auto --boards rpi4,rpi5,rk3588",
            "edgekit choose model.tflite --fps 15 -o boards.csv",
        ),
    )(choose)


@takes_compile_options()
def choose(
    model: ModelOnly = None,
    fps: _Fps = None,
    within: _Within = None,
    boards: _Boards = None,
    dask: Workers = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    output: _Output = None,
    as_json: Json = False,
) -> None:
    """Rank the boards on which a model is fast enough."""
    from edgekit.host.cli.output import check_writable, emit

    limit = _limit_ms(fps, within)
    if output is not None:
        if output.suffix not in _SUFFIXES:
            raise InputError(f"--output: expected a file .csv or .json, found {output}")
        check_writable(output)
    path = model_file(model)
    if file_kind(path) is FileKind.BUNDLE:
        raise InputError(f"{path}: expected a model, found a bundle, which is for one board only")
    searches = _searches(boards, limit)
    _estimate(searches, path, options, dask)
    _check_failures(searches)
    rows = [row for search in searches for row in search.rows()]
    rows.sort(key=lambda row: (row.load, row.board))
    if output is not None:
        _write(output, rows, limit)
    if as_json:
        emit(_document(rows, limit))
    else:
        _show(rows, limit)
    timed = [search for search in searches if not search.missing]
    check_all([(search.names[0], search.last) for search in timed])


def _limit_ms(fps: float | None, within: float | None) -> float:
    """The milliseconds that an inference may take."""
    if (fps is None) == (within is None):
        found = "neither" if fps is None else "both"
        raise InputError(f"expected --fps RATE or --within MS, found {found}; give one of them")
    option, value = ("--fps", fps) if fps is not None else ("--within", within)
    assert value is not None
    if not 0 < value < math.inf or not 0 < 1e3 / value < math.inf:
        what = "inferences per second" if fps is not None else "milliseconds"
        raise InputError(f"{option}: expected a number of {what} above 0, found {value:g}")
    return 1e3 / value if fps is not None else value


@dataclass(frozen=True)
class _Row:
    """A board of the result. `load`: the share of its fastest cluster's cores that the rate keeps
    busy, infinite if the board does not reach it; `why_not` is the reason, else empty."""

    board: str
    cores: int
    memory_bytes: int
    load: float = math.inf
    threads: int | None = None
    estimated_ms: float | None = None
    proof: Validation | None = None
    used_bytes: int | None = None
    why_not: str = ""

    def to_json(self) -> dict[str, Any]:
        time = self.estimated_ms
        return {
            "board": self.board,
            "reached": not self.why_not,
            "threads": self.threads,
            "cores": self.cores,
            "estimated_ms": time,
            "error_percent": self.proof.median_percent if self.proof else None,
            "per_second": 1e3 / time if time else None,
            "load": None if self.why_not else self.load,
            "used_bytes": self.used_bytes,
            "memory_bytes": self.memory_bytes,
            "why_not": self.why_not or None,
        }


@dataclass
class _Search:
    """The search for the fewest threads on which boards that share all estimates are fast enough;
    `found` has the documents by threads."""

    names: list[str]
    profile: BoardProfile
    cores: int
    cluster: str
    limit: float
    missing: str = ""
    last: TaskReport | None = None
    found: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def failed(self) -> TaskReport | None:
        """The report of an estimate that failed, which ends the search."""
        return self.last if self.last and self.last.code else None

    def next_threads(self) -> int | None:
        """The threads to estimate next, None at the end. Counts that could not reach the limit
        even if n threads were n times as fast as one are skipped."""
        if self.missing or self.failed:
            return None
        if not self.found:
            return 1
        if min(map(self.time, self.found)) <= self.limit:
            return None
        threads = max(max(self.found) + 1, math.ceil(self.time(1) / self.limit))
        return threads if threads <= self.cores else None

    def next_request(self) -> PlacementRequest | None:
        """The placement to estimate next."""
        from edgekit.device.runtime.agent.specs import PlacementRequest

        threads = self.next_threads()
        return PlacementRequest(threads, self.cluster) if threads else None

    def time(self, threads: int) -> float:
        """The estimated milliseconds."""
        return float(self.found[threads]["estimated_ms"]["median"])

    def rows(self) -> list[_Row]:
        """One row per board."""
        row = self._row()
        return [replace(row, board=name) for name in self.names]

    def _row(self) -> _Row:
        from edgekit.kb.targets.core_parts import Validation

        row = _Row("", self.cores, self.profile.memory_bytes)
        if self.missing or self.failed:
            why = f"failed: {self.failed.message}" if self.failed else self.missing
            return replace(row, why_not=why)
        threads = min(self.found, key=self.time)
        time, document = self.time(threads), self.found[threads]
        used = sum(document[f"{part}_bytes"] for part in ("arena", "weights", "state"))
        row = replace(
            row,
            threads=threads,
            estimated_ms=time,
            proof=Validation(**document["error"]) if document["error"] else None,
            used_bytes=used,
        )
        if time <= self.limit:
            return replace(row, load=threads * time / self.cores / self.limit)
        return replace(row, why_not=self._too_slow(row))

    def _too_slow(self, row: _Row) -> str:
        from edgekit.host.cli.compile import threads_text
        from edgekit.host.cli.output import three_digits
        from edgekit.host.simulator.report import error_text

        time = row.estimated_ms or 0.0
        shown = f"estimated {three_digits(time)} ms {error_text(row.proof)}"
        text = f"{shown} on {threads_text(row.threads or 1)}"
        if len(self.found) == 1 and self.cores > 1:
            text += f", too much for {self.cores}"
        near = row.proof and time * (1 - row.proof.median_percent / 100) <= self.limit
        return f"{text}; the limit is within the error" if near else text


def _searches(given: str | None, limit: float) -> list[_Search]:
    """One search for all boards that share every estimate."""
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import board_names, load_board
    from edgekit.kb.targets.clusters import clusters_of

    if given:
        profiles = {name: load_board(profile_of(name)) for name in boards_of(given)}
    else:
        every = {name: load_board(name) for name in board_names()}
        profiles = {name: board for name, board in every.items() if board.compatible}
    shared: dict[BoardProfile, _Search] = {}
    for name, board in profiles.items():
        # An estimate depends on everything else: core, clock, caches and memory.
        key = replace(board, name="", description="", compatible=(), source="")
        if key in shared:
            shared[key].names.append(name)
            continue
        clusters = clusters_of(board)
        cluster = clusters[0].name if len(clusters) > 1 else ""
        search = _Search([name], board, clusters[0].cores or board.cores, cluster, limit)
        search.missing = _why_untimed(board)
        shared[key] = search
    return list(shared.values())


def _why_untimed(board: BoardProfile) -> str:
    from edgekit.host.simulator.target import has_model

    if board.nna is not None:
        return "has an NNA, whose time is emulated; see: edgekit lab bench nna"
    return "" if has_model(board) else f"no timing model of its core, {board.core or board.arch}"


def _estimate(
    searches: Sequence[_Search], model: Path, options: CompileOptions, dask: str | None
) -> None:
    """Estimates each board with more and more threads until it is fast enough."""
    from edgekit.host.cli.estimate_many import tasks_of
    from edgekit.host.cli.progress import counting
    from edgekit.host.lab.jobs.pool import work_off

    task_on = tasks_of(model, words_of(options), options.samples)
    of_task: dict[int, tuple[_Search, Task]] = {}

    def next_task(search: _Search) -> Task | None:
        request = search.next_request()
        if request is None:
            return None
        task = task_on(search.names[0], request)
        of_task[id(task)] = search, task
        return task

    first = [task for search in searches if (task := next_task(search))]
    done = 0
    with pool_for(dask) as pool, counting(f"estimating {model.name}, boards") as tell:

        def then(task: Task, report: TaskReport) -> Task | None:
            nonlocal done
            search, _ = of_task[id(task)]
            search.last = report
            if report.document:
                search.found[int(report.document["threads"])] = report.document
            following = next_task(search)
            if following is None:
                done += 1
                tell(done, len(first))
            return following

        work_off(pool, first, then)


def _check_failures(searches: Sequence[_Search]) -> None:
    """Raises the error if all estimates failed, as a broken model makes them."""
    timed = [search for search in searches if not search.missing]
    failed = [(search.names[0], search.failed) for search in timed if search.failed]
    if failed and len(failed) == len(timed):
        check_all(failed[:1])


def _document(rows: Sequence[_Row], limit: float) -> dict[str, Any]:
    boards = [row.to_json() for row in rows]
    return {"schema": "edgekit.choose/1", "within_ms": limit, "boards": boards}


def _write(file: Path, rows: Sequence[_Row], limit: float) -> None:
    import csv
    import io
    import json

    from edgekit.host.common.files import atomic_write

    document = _document(rows, limit)
    if file.suffix == ".json":
        text = json.dumps(document, indent=2) + "\n"
    else:
        made = io.StringIO()
        writer = csv.DictWriter(made, list(_Row("", 0, 0).to_json()), lineterminator="\n")
        writer.writeheader()
        writer.writerows(document["boards"])
        text = made.getvalue()
    atomic_write(file, text.encode())


def _show(rows: Sequence[_Row], limit: float) -> None:
    from edgekit.host.cli.output import byte_size, milliseconds, table, three_digits
    from edgekit.host.simulator.report import NOT_VALIDATED, error_text

    rate = f"{three_digits(limit)} ms, {three_digits(1e3 / limit)} a second"
    reached = [row for row in rows if not row.why_not]
    print(f"limit    {rate}; load: share of the cores kept busy")
    shown = []
    for row in reached:
        time = row.estimated_ms or 0.0
        shown.append(
            (
                row.board,
                f"{row.threads} of {row.cores}",
                milliseconds(time),
                error_text(row.proof) if row.proof else NOT_VALIDATED,
                three_digits(1e3 / time),
                f"{100 * row.load:.1f}%",
                byte_size(row.used_bytes or 0),
                byte_size(row.memory_bytes),
            )
        )
    heads = ("board", "threads", "estimated ms", "error", "a second", "load", "memory", "of")
    if shown:
        table(heads, shown, drop=_LESS_IMPORTANT)
    else:
        print(
            "no board reaches it; try --precision auto, 8 bits (edgekit quantize), or a lower rate"
        )
    for row in reached:
        error = row.proof.median_percent / 100 if row.proof else 0.0
        if (row.estimated_ms or 0.0) * (1 + error) > limit:
            print(f"close    {row.board}: the limit is within the error of its estimate")
    for row in rows:
        if row.why_not:
            print(f"no {row.board}: {row.why_not}")

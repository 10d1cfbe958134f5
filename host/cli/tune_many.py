"""`edgekit lab tune gemm|model` on several boards, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.host.cli.many import check_all, pool_for
from edgekit.host.common.text import counted

if TYPE_CHECKING:
    from edgekit.host.lab.jobs.task import Sent
    from edgekit.host.lab.jobs.tuning import Tuning


def tune_many(
    command: Sequence[str | Sent],
    boards: Sequence[str],
    files: Mapping[str, bytes],
    seconds: float,
    dask: str | None,
    as_json: bool,
) -> None:
    """Tunes boards in parallel, prints the result of each, and raises an error if any failed.

    `command` starts with `lab tune` and the subcommand. Boards that are just profiles need no
    connection.
    """
    from edgekit.host.cli.output import emit, note
    from edgekit.host.cli.progress import stages
    from edgekit.host.cli.tune_estimated import is_to_measure
    from edgekit.host.lab.jobs.tuning import tune_boards

    of_model = command[2] == "model"
    reached = [b for b in boards if not of_model or is_to_measure(b)]
    try:
        with (
            pool_for(dask, reached, size=len(boards)) as pool,
            stages(f"tuning {len(boards)} board{'s' * (len(boards) != 1)}") as tell,
        ):
            found = tune_boards(
                pool, boards, command, files, seconds, lambda t: tell(_format_progress(t))
            )
    except KeyboardInterrupt:
        note("stopped; measurements are kept, and the same command resumes")
        raise
    if dask and of_model:
        _build_tables(found)
    if as_json:
        emit({"schema": "edgekit.tune.boards/1", "boards": [_to_json(t) for t in found]})
    else:
        _print_table(found, of_model)
    check_all([(t.board, t.report) for t in found])


def _build_tables(found: Sequence[Tuning]) -> None:
    """Builds this host's tables, which then include the workers' measurements."""
    from edgekit.host.compiler.tables.gemm import user_table
    from edgekit.host.lab.tune.tables import build_for
    from edgekit.kb.targets.board import load_board

    for name in sorted({t.document["profile"] for t in found if t.ok}):
        profile = load_board(name)
        build_for(profile, user_table(profile), alone=False)


def _format_progress(tuning: Tuning) -> str:
    """Progress line printed after each slice of a board's budget."""
    if not tuning.ok:
        return f"{tuning.board}: {tuning.report.message if tuning.report else 'not started'}"
    gain = tuning.document.get("gain", 1.0)
    end = ", nothing left to try" if tuning.document.get("finished") else ""
    return f"{tuning.board}: {counted(tuning.measured, 'measurement')}, {gain:.3f} x{end}"


def _print_table(found: Sequence[Tuning], of_model: bool) -> None:
    from edgekit.host.cli.output import milliseconds, table

    rows = []
    for t in found:
        if not t.ok:
            continue
        d = t.document
        state = "finished" if d["finished"] else "resumes with the same command"
        times = [milliseconds(d[key]) for key in ("before_ms", "after_ms") if of_model]
        rows.append((t.board, state, str(t.measured), f"{d['gain']:.3f}", *times))
    heads = ("board", "state", "measured", "gain", *(("ms before", "ms now") if of_model else ()))
    if rows:
        table(heads, rows, left=2)
    for t in found:
        if not t.ok:
            print(f"failed  {t.board}: {t.report.message if t.report else 'not started'}")
    if rows and not of_model:
        print(f"next    edgekit lab kb build --board {rows[0][0]}")


def _to_json(tuning: Tuning) -> dict[str, Any]:
    report = tuning.report
    return {
        "board": tuning.board,
        "ok": tuning.ok,
        "code": report.code if report else None,
        "error": report.message if report and report.code else None,
        "worker": report.worker if report else None,
        "measured": tuning.measured,
        "slices": tuning.slices,
        "result": dict(tuning.document) or None,
    }

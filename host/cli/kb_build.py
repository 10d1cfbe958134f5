"""`edgekit lab kb build`: turns measurements into a table."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.kb_shared import operator_text
from edgekit.host.cli.options import BoardOption, Json, examples, file_named, refuse_without
from edgekit.host.common.text import counted
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.lab.tune.compare import MethodChange
    from edgekit.host.lab.tune.field_calls import FieldCalls
    from edgekit.host.lab.tune.field_profiles import FieldHistory
    from edgekit.host.lab.tune.tables import Built
    from edgekit.kb.targets.board import BoardProfile

_NAMED = 5  # bad rows listed in an error
_SHOWN = 20  # changed rows printed


_Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        show_default=False,
        help="File to write (default: your own table of the board).",
    ),
]
_Alone = Annotated[
    bool, typer.Option("--no-base", help="Leave out the rows of edgekit's own table.")
]
_Learn = Annotated[
    bool, typer.Option("--learn", help="Index products by the sequences with least regret.")
]
_Import = Annotated[
    Path | None,
    typer.Option(
        "--import",
        metavar="FILE.csv",
        show_default=False,
        help="Import measurements into the history first, one per line.",
    ),
]
_SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad", help="Skip lines of --import that cannot be used, instead of importing none."
    ),
]


def register(group: typer.Typer) -> None:
    """Adds the command to the group `kb`."""
    group.command(
        "build",
        epilog=examples(
            "edgekit lab kb build --board local",
            "edgekit lab kb build --board a57 --no-base -o a57.json",
            "edgekit lab kb build --board a57 --import past.csv --skip-bad",
        ),
    )(build)


def build(
    context: typer.Context,
    board: BoardOption = None,
    output: _Output = None,
    alone: _Alone = False,
    learn: _Learn = False,
    measured: _Import = None,
    skip_bad: _SkipBad = False,
    as_json: Json = False,
) -> None:
    """Build a board's table from the history, the same bytes each time."""
    from edgekit.host.cli.kb_shared import is_learned, profile
    from edgekit.host.cli.output import emit, note
    from edgekit.host.compiler.tables.gemm import user_table
    from edgekit.host.compiler.tables.spmv import add_spmv_rows, user_spmv_table
    from edgekit.host.lab.tune.orders import build_orders
    from edgekit.host.lab.tune.tables import build_for

    wanted = profile(board)
    if measured is None:
        refuse_without(context, "--import", "skip_bad")
    imported = None if measured is None else _import_csv(measured, skip_bad, as_json)
    path = file_named(output, f"{wanted.name}.json") if output else user_table(wanted)
    orders = () if output else build_orders(wanted)[1]
    made = build_for(wanted, path, alone, learn)
    if made.calls.rows and not output:
        add_spmv_rows(wanted, made.calls.rows, user_spmv_table(wanted))
    if made.skipped:
        note(f"implausible measurements in the history, skipped: {made.skipped}")
    if made.outdated:
        note(
            f"measurements that compare with another default, left out: {made.outdated}; "
            f"measure again: edgekit lab tune gemm --board {wanted.name}"
        )
    learned = is_learned(made.table.sequences)
    if as_json:
        emit(
            {
                "schema": "edgekit.kb.build/1",
                "board": wanted.name,
                "file": str(path),
                "imported": imported,
                "written": made.written,
                "rows": len(made.table.rows),
                "rows_kept": made.kept[0],
                "rows_dropped": made.dropped,
                "previous": str(made.previous) if made.previous else None,
                "measurements": made.measurements,
                "operators": len(made.table.operators),
                "operators_kept": made.kept[1],
                "operator_measurements": made.operators,
                "field": _field_document(made.field),
                "products": _calls_document(made.calls),
                "orders": len(orders),
                "changes": [_change_document(change) for change in made.changes],
                "skipped": made.skipped,
                "outdated": made.outdated,
                "sequences": "learned" if learned else "default",
                "regret": asdict(made.regret) if made.regret.shapes else None,
            }
        )
        return
    _show_table(wanted, path, made, len(orders))


def _show_table(board: BoardProfile, path: Path, made: Built, orders: int) -> None:
    """Prints how the table changed."""
    from edgekit.host.cli.kb_shared import is_learned

    if not made.written:
        _show_field(made.field)
        _show_calls(made.calls)
        print(f"unchanged  no field measurement contradicts the table of {board.name}")
        return
    products, operators = made.kept
    print(f"{path}: {_rows_text(len(made.table.rows), products, made.measurements)}")
    if made.table.operators:
        print(f"operators  {_rows_text(len(made.table.operators), operators, made.operators)}")
    if orders:
        print(f"orders     {orders} of subgraphs, in a separate table")
    _show_field(made.field)
    _show_calls(made.calls)
    learned = is_learned(made.table.sequences)
    print(
        f"sequences  {'learned: denser ones lower the regret' if learned else 'the default ones'}"
    )
    if made.regret.shapes:
        found = made.regret
        print(
            f"regret     mean {found.mean:.1%}, worst {found.worst:.1%} "
            f"({counted(found.shapes, 'product')}, each left out in turn)"
        )
    for change in made.changes[:_SHOWN]:
        print(f"changed    {_change_text(change)}")
    if len(made.changes) > _SHOWN:
        print(f"           and {len(made.changes) - _SHOWN} more; all of them: --json")


def _rows_text(rows: int, kept: int, measurements: int) -> str:
    if not measurements and rows == kept:
        return f"{counted(kept, 'row')} of edgekit's own, none measured here"
    own = f"{counted(rows - kept, 'row')} from {counted(measurements, 'measurement')}"
    own += " (no answer changes)" if rows == kept else ""
    return f"{own}, {kept} of edgekit's own" if kept else own


def _show_field(field: FieldHistory) -> None:
    if field.releases or field.unknown or field.left_out:
        print(
            f"field      {counted(len(field.measurements), 'measurement')}: "
            f"{counted(field.releases, 'release')} on {counted(field.boards, 'board')}; left out: "
            f"{counted(field.left_out, 'batch', 'batches')} of busy, hot or slowed boards, "
            f"{counted(field.unknown, 'release')} compiled elsewhere"
        )


def _show_calls(calls: FieldCalls) -> None:
    """Prints what the products of programs contributed, and which other methods won."""
    if not calls.boards:
        return
    print(
        f"products   {counted(len(calls.measurements), 'measurement')} and "
        f"{counted(len(calls.rows), 'sparse row')} from programs on "
        f"{counted(calls.boards, 'board')}"
    )
    for each in calls.winners[:_SHOWN]:
        print(
            f"faster     {each.product} x{each.threads}: {each.method} takes {each.ratio:.3g}, "
            f"won {each.won} of {counted(each.batches, 'batch', 'batches')}, "
            f"{counted(each.boards, 'board')}"
        )


def _calls_document(calls: FieldCalls) -> dict[str, object]:
    return {
        "measurements": len(calls.measurements),
        "sparse_rows": len(calls.rows),
        "boards": calls.boards,
        "winners": [asdict(each) for each in calls.winners],
    }


def _field_document(field: FieldHistory) -> dict[str, int]:
    return {
        "measurements": len(field.measurements),
        "releases": field.releases,
        "boards": field.boards,
        "releases_unknown": field.unknown,
        "batches_left_out": field.left_out,
    }


def _change_text(change: MethodChange) -> str:
    row = change.row
    shape = f"{row.shape.m} x {row.shape.k} x {row.shape.n}"
    was, now = (operator_text(m) for m in (change.before, change.after))
    return f"{row.key.form} {row.key.dtype} {shape}: {was} -> {now}: {change.why}"


def _change_document(change: MethodChange) -> dict[str, object]:
    key, methods = change.row.key, (change.before, change.after)
    before, after = (asdict(m) if m else None for m in methods)
    return {
        "form": key.form,
        "dtype": key.dtype,
        "threads": key.threads,
        **asdict(change.row.shape),
        "before": before,
        "after": after,
        "why": change.why,
    }


def _import_csv(file: Path, skip_bad: bool, as_json: bool) -> dict[str, object]:
    """Imports measurements into the history, all or none unless `skip_bad`; returns the counts."""
    from edgekit.device.version import VERSION
    from edgekit.host.cli.output import note
    from edgekit.host.lab.history.store import History
    from edgekit.host.lab.tune.csv_import import read_csv

    read = read_csv(file, VERSION, datetime.now(UTC).isoformat(timespec="seconds"))
    if read.refused and not skip_bad:
        named = "; ".join(read.refused[:_NAMED])
        more = f" (and {len(read.refused) - _NAMED} more)" if len(read.refused) > _NAMED else ""
        raise InputError(f"{file}: {named}{more}; fix them, or leave them out: --skip-bad")
    with History() as history:
        added = history.add_new(read.measurements)
    known = len(read.measurements) - added
    if not as_json:
        for line in read.refused:
            note(f"{file}: left out {line}")
        new = counted(added, "measurement")
        print(f"imported   {new}, {known} known before, {len(read.refused)} refused")
    return {"file": str(file), "new": added, "known": known, "refused": read.refused}

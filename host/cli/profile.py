"""`edgekit profile`: field profiles of models, pulled from boards, stored and queried."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.host.cli import profile_report, profile_write
from edgekit.host.cli.options import (
    BoardOption,
    Json,
    MaxSize,
    Parallel,
    Select,
    Store,
    TransportOption,
    board_name,
    byte_count,
    examples,
    refuse_with,
    refuse_without,
    writes,
)
from edgekit.host.common.text import counted

if TYPE_CHECKING:
    from edgekit.host.fleet.profiles import StoredBatches

_MOST_ROWS = 1000


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Collect and compare the times of models in the field.",
        epilog=examples(
            "edgekit profile pull --board local",
            "edgekit profile list",
            'edgekit profile list "DESCRIBE operators"',
        ),
        rich_markup_mode=None,
    )
    group.command(
        "pull",
        epilog=examples(
            "edgekit profile pull --board local",
            "edgekit profile pull --select !asleep",
            "edgekit profile pull --spool card/spool --board bench-1",
            "edgekit profile pull --sampling off --board local",
        ),
    )(pull)
    group.command(
        "list",
        epilog=examples(
            "edgekit profile list",
            'edgekit profile list "DESCRIBE operators"',
            "edgekit profile list -o profiles.csv",
            "edgekit profile list --forget --days 90 --max-size 2GiB",
        ),
    )(list_profiles)
    profile_report.register(group)
    app.add_typer(group, name="profile")


def pull(
    context: typer.Context,
    board: BoardOption = None,
    spool: Annotated[
        Path | None,
        typer.Option(
            "--spool",
            metavar="FOLDER",
            show_default=False,
            help="Copy of the board's spool to read instead, as from its SD card.",
        ),
    ] = None,
    sampling: Annotated[
        Literal["on", "off", "explore"] | None,
        typer.Option(
            "--sampling",
            show_default=False,
            help="Turn sampling on or off first, or let products try other methods.",
        ),
    ] = None,
    transport: TransportOption = None,
    select: Select = None,
    parallel: Parallel = None,
    as_json: Json = False,
) -> None:
    """Fetch the profiles that wait on boards, and delete them there."""
    if select:
        from edgekit.host.cli.fleet_work import pull_from, refuse_with_select

        refuse_with_select(board=board, spool=spool, transport=transport)
        pull_from(select, sampling, parallel, as_json)
    elif spool is not None:
        refuse_with(context, "--spool", "sampling")
        _pull_from_spool(spool, board, as_json)
    else:
        _pull_profiles(board_name(board), sampling, transport, as_json)


def _pull_profiles(
    name: str,
    sampling: Literal["on", "off", "explore"] | None,
    transport: Literal["ssh", "serial"] | None,
    as_json: bool,
) -> None:
    from edgekit.host.cli.output import emit, warn
    from edgekit.host.deploy.connections import connect_to
    from edgekit.host.fleet import profiles

    device = connect_to(name, transport)
    if sampling:
        profiles.switch(device, sampling)
    store = profiles.ProfileStore()
    found = profiles.pull(device, store)
    store.compact()
    for why in found.stored.reasons:
        warn(f"{why}; kept in {store.folder / 'refused'}")
    if as_json:
        emit({"schema": "edgekit.profile.pull/1", "board": name, **asdict(found)})
        return
    print(f"pulled   {_counts(found.stored)} from {name}")
    if found.dropped or found.quarantined:
        print(f"lost     {found.dropped} dropped for lack of space, {found.quarantined} damaged")
    if not found.on:
        print(f"note     sampling is off: edgekit profile pull --sampling on --board {name}")


def _pull_from_spool(folder: Path, board: str | None, as_json: bool) -> None:
    """Stores the files of a board's spool without deleting them."""
    from edgekit.host.cli.output import emit, warn
    from edgekit.host.errors import InputError, TransferError
    from edgekit.host.fleet import profiles

    if board is None:
        raise InputError("expected --board with --spool, to name the spool's board, found none")
    store = profiles.ProfileStore()
    stored, damaged = profiles.upload(store, board, folder)
    store.compact()
    for why in (*stored.reasons, *damaged):
        warn(why)
    if as_json:
        emit({"schema": "edgekit.profile.upload/1", "board": board, **asdict(stored)})
    else:
        print(f"stored   {_counts(stored)} from {folder}")
    if damaged:
        raise TransferError(
            f"{folder}: expected complete batches, found {len(damaged)} damaged files; "
            "copy them again"
        )


def list_profiles(
    context: typer.Context,
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL",
            show_default=False,
            help="Query of the views operators, batches and fields (default: the boards).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            parser=writes("profiles.csv"),
            metavar="FILE",
            show_default=False,
            help="File (.parquet, .csv, .json) for all rows (default query: operators).",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of rows to show.")
    ] = _MOST_ROWS,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove profiles by --days and --max-size.")
    ] = False,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            metavar="N",
            min=0,
            show_default=False,
            help="With --forget, remove profiles older than this.",
        ),
    ] = None,
    max_size: MaxSize = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """List the boards that sent profiles, or the rows of a query."""
    if forget:
        refuse_with(context, "--forget", "sql", "output", "limit", "store")
        _forget(days, max_size, as_json)
        return
    refuse_without(context, "--forget", "days", "max_size")
    if output is not None:
        refuse_with(context, "-o", "limit")
        _export_profiles(output, sql or "FROM operators", store, as_json)
    elif sql is not None:
        _query_profiles(sql, limit, store, as_json)
    else:
        refuse_without(context, "SQL", "limit")
        _list_boards(store, as_json)


def _list_boards(store: str | None, as_json: bool) -> None:
    from datetime import UTC, datetime

    from edgekit.host.cli.output import emit, table

    found = profile_write.store_of(store).boards()
    if as_json:
        emit({"schema": "edgekit.profile.list/1", "boards": [asdict(board) for board in found]})
        return
    if not found:
        print("no profiles yet; fetch some: edgekit profile pull --board BOARD")
        return
    headers = ("board", "type", "batches", "releases", "dropped", "damaged", "last (UTC)")
    rows = []
    for b in found:
        quarantined = "" if b.quarantined is None else b.quarantined
        counts = (b.batches, b.releases, b.dropped, quarantined)
        last = datetime.fromtimestamp(b.last, UTC).strftime("%Y-%m-%d %H:%M")
        rows.append((b.board, b.profile, *map(str, counts), last))
    table(headers, rows, left=2)


def _query_profiles(sql: str, limit: int, store: str | None, as_json: bool) -> None:
    from edgekit.host.cli.output import emit, table, warn
    from edgekit.host.fleet.profiles import query

    found = query(profile_write.store_of(store), sql, limit)
    if found.more:
        warn(f"expected at most {limit} rows, found more; show more: --limit, or write all: -o")
    rows = [[_format_cell(value) for value in row] for row in found.rows]
    if as_json:
        plain = [[_to_json_value(value) for value in row] for row in found.rows]
        emit({"schema": "edgekit.profile.query/1", "columns": found.columns, "rows": plain})
    elif found.columns:
        table(found.columns, rows)


def _export_profiles(output: Path, sql: str, store: str | None, as_json: bool) -> None:
    from edgekit.host.cli.output import check_writable, emit
    from edgekit.host.fleet import profiles

    check_writable(output)
    rows = profiles.export(profile_write.store_of(store), output, sql)
    if as_json:
        emit({"schema": "edgekit.profile.export/1", "file": str(output), "rows": rows})
        return
    print(f"wrote    {counted(rows, 'row')} to {output}")


def _forget(days: int | None, max_size: str | None, as_json: bool) -> None:
    from edgekit.host.cli.output import emit
    from edgekit.host.errors import InputError
    from edgekit.host.fleet.profiles import ProfileStore

    if days is None and max_size is None:
        raise InputError("expected --days or --max-size, which say what to remove, found neither")
    files, rows = ProfileStore().forget(days, byte_count(max_size, "--max-size"))
    if as_json:
        emit({"schema": "edgekit.profile.forget/1", "files": files, "rows": rows})
        return
    print(f"removed  {counted(rows, 'row')} in {counted(files, 'file')}")


def _format_cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _to_json_value(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _counts(stored: StoredBatches) -> str:
    """Counts of stored batches as text."""
    known = f", {stored.known} known before" if stored.known else ""
    refused = f", {len(stored.refused)} refused" if stored.refused else ""
    batches = counted(stored.new, "batch", "batches")
    return f"{batches} with {counted(stored.rows, 'row')}{known}{refused}"

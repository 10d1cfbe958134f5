"""`edgekit profile`: field profiles of models, pulled from boards, stored and queried."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgekit.host.cli import profile_home, profile_report, profile_write
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
)

_MOST_ROWS = 1000


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Collect and compare the times of models in the field.",
        epilog=examples(
            "edgekit profile pull --board local",
            "edgekit profile list",
            'edgekit profile query "DESCRIBE operators"',
        ),
        rich_markup_mode=None,
    )
    group.command(
        "pull",
        epilog=examples(
            "edgekit profile pull --board local",
            "edgekit profile pull --select !asleep",
            "edgekit profile pull --spool card/spool --board bench-1",
        ),
    )(pull)
    group.command("sampling", epilog=examples("edgekit profile sampling off --board local"))(
        sampling
    )
    group.command("list", epilog=examples("edgekit profile list", "edgekit profile list --json"))(
        list_boards
    )
    group.command(
        "query",
        epilog=examples(
            'edgekit profile query "DESCRIBE operators"', "edgekit profile query -o profiles.csv"
        ),
    )(query)
    group.command(
        "forget",
        epilog=examples(
            "edgekit profile forget --days 90", "edgekit profile forget --max-size 2GiB"
        ),
    )(forget)
    profile_report.register(group)
    profile_home.register(group)
    app.add_typer(group, name="profile")


def pull(
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
    transport: TransportOption = None,
    select: Select = None,
    parallel: Parallel = None,
    as_json: Json = False,
) -> None:
    """Fetch the profiles that wait on boards, and delete them there."""
    if select:
        from edgekit.host.cli.fleet_work import pull_from, refuse_with_select

        refuse_with_select(board=board, spool=spool, transport=transport)
        pull_from(select, parallel, as_json)
    elif spool is not None:
        _pull_from_spool(spool, board, as_json)
    else:
        _pull(board_name(board), transport, as_json)


def _pull(name: str, transport: Literal["ssh", "serial"] | None, as_json: bool) -> None:
    from edgekit.host.cli.output import emit, warn
    from edgekit.host.deploy.connections import connect_to
    from edgekit.host.fleet import profiles

    store = profiles.ProfileStore()
    found = profiles.pull(connect_to(name, transport), store)
    store.compact()
    for why in found.stored.refused:
        warn(f"{why}; it is kept in {store.folder / 'refused'}")
    if as_json:
        emit({"schema": "edgekit.profile.pull/1", "board": name, **asdict(found)})
        return
    print(f"pulled   {profile_home.counts(found.stored)} from {name}")
    if found.dropped or found.quarantined:
        print(f"lost     {found.dropped} dropped for lack of space, {found.quarantined} damaged")
    if not found.on:
        print(f"note     sampling is off: edgekit profile sampling on --board {name}")


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
    for why in (*stored.refused, *damaged):
        warn(why)
    if as_json:
        emit({"schema": "edgekit.profile.upload/1", "board": board, **asdict(stored)})
    else:
        print(f"stored   {profile_home.counts(stored)} from {folder}")
    if damaged:
        raise TransferError(
            f"{folder}: expected complete batches, found {len(damaged)} damaged files; "
            "copy them again"
        )


def sampling(
    state: Annotated[
        Literal["on", "off"], typer.Argument(show_default=False, help="Whether to sample.")
    ],
    board: BoardOption = None,
    transport: TransportOption = None,
    as_json: Json = False,
) -> None:
    """Turn the sampling of a board on or off."""
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.connections import connect_to
    from edgekit.host.fleet import profiles

    name = board_name(board)
    profiles.switch(connect_to(name, transport), state == "on")
    if as_json:
        emit({"schema": "edgekit.profile.switch/1", "board": name, "on": state == "on"})
        return
    print(f"sampling {state} on {name}")


def list_boards(store: Store = None, as_json: Json = False) -> None:
    """List the boards that sent profiles."""
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


def query(
    sql: Annotated[
        str,
        typer.Argument(metavar="SQL", help="Query of the views `operators` and `batches`."),
    ] = "FROM operators",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            metavar="FILE",
            show_default=False,
            help="File to write all rows to: .parquet, .csv or .json.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of rows to show.")
    ] = _MOST_ROWS,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Query the profiles in SQL, to the terminal or to a file."""
    from edgekit.host.cli.output import emit, table, warn
    from edgekit.host.fleet.profiles import query as ask

    if output is not None:
        _export(output, sql, store, as_json)
        return
    found = ask(profile_write.store_of(store), sql, limit)
    if found.more:
        warn(f"expected at most {limit} rows, found more; show more: --limit, or write all: -o")
    rows = [[_cell(value) for value in row] for row in found.rows]
    if as_json:
        plain = [[_plain(value) for value in row] for row in found.rows]
        emit({"schema": "edgekit.profile.query/1", "columns": found.columns, "rows": plain})
    elif found.columns:
        table(found.columns, rows)


def _export(output: Path, sql: str, store: str | None, as_json: bool) -> None:
    from edgekit.host.cli.output import check_writable, emit
    from edgekit.host.fleet import profiles

    check_writable(output)
    rows = profiles.export(profile_write.store_of(store), output, sql)
    if as_json:
        emit({"schema": "edgekit.profile.export/1", "file": str(output), "rows": rows})
        return
    print(f"wrote    {rows} rows to {output}")


def forget(
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            metavar="N",
            min=0,
            show_default=False,
            help="Remove profiles older than this.",
        ),
    ] = None,
    max_size: MaxSize = None,
    as_json: Json = False,
) -> None:
    """Remove old profiles, by their age or until they fit a size."""
    from edgekit.host.cli.output import emit
    from edgekit.host.errors import InputError
    from edgekit.host.fleet.profiles import ProfileStore

    if days is None and max_size is None:
        raise InputError("expected --days or --max-size, which say what to remove, found neither")
    files, rows = ProfileStore().forget(days, byte_count(max_size, "--max-size"))
    if as_json:
        emit({"schema": "edgekit.profile.forget/1", "files": files, "rows": rows})
        return
    print(f"removed  {rows} rows in {files} files")


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _plain(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)

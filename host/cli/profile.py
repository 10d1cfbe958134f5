"""`edgekit profile`: what models did on boards in the field, fetched, kept and asked."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgekit.host.cli import profile_home, profile_report, profile_write
from edgekit.host.cli.options import (
    Board,
    Json,
    Keep,
    Over,
    Source,
    board_name,
    byte_count,
    examples,
)

_MOST_ROWS = 1000


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="What models do on boards in the field: times per operator, and why.",
        epilog=examples(
            "edgekit profile pull --board local",
            "edgekit profile list",
            'edgekit profile query "SELECT name, median(median_ns) FROM operators GROUP BY name"',
        ),
        rich_markup_mode=None,
    )
    group.command("pull", epilog=examples("edgekit profile pull --board local"))(pull)
    group.command("switch", epilog=examples("edgekit profile switch off --board local"))(switch)
    group.command("list", epilog=examples("edgekit profile list", "edgekit profile list --json"))(
        list_boards
    )
    group.command("query", epilog=examples('edgekit profile query "DESCRIBE operators"'))(query)
    group.command("export", epilog=examples("edgekit profile export profiles.csv"))(export)
    group.command(
        "forget",
        epilog=examples("edgekit profile forget --days 90", "edgekit profile forget --keep 2GiB"),
    )(forget)
    profile_home.register(group)
    profile_report.register(group)
    profile_write.register(group)
    app.add_typer(group, name="profile")


def pull(board: Board = None, via: Over = None, as_json: Json = False) -> None:
    """Fetch the profiles that wait on a board; there they go once they are stored here."""
    from edgekit.host.cli.output import emit, warn
    from edgekit.host.deploy.connections import connect_to
    from edgekit.host.fleet import profiles

    name = board_name(board)
    store = profiles.ProfileStore()
    found = profiles.pull(connect_to(name, via).transport, store)
    store.compact()
    for why in found.stored.refused:
        warn(f"{why}; it is kept in {store.folder / 'refused'}")
    if as_json:
        emit({"schema": "edgekit.profile.pull/1", "board": name, **asdict(found)})
        return
    print(f"pulled   {profile_home.counts(found.stored)} from {name}")
    if found.dropped or found.quarantined:
        print(f"lost     {found.dropped} dropped for want of room, {found.quarantined} damaged")
    if not found.on:
        print(f"note     sampling is off: edgekit profile switch on --board {name}")


def switch(
    state: Annotated[str, typer.Argument(metavar="on|off", show_default=False)],
    board: Board = None,
    via: Over = None,
    as_json: Json = False,
) -> None:
    """Turn sampling on a board on or off; it is on unless told. What runs goes on as it began."""
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.connections import connect_to
    from edgekit.host.errors import InputError
    from edgekit.host.fleet import profiles

    if state not in ("on", "off"):
        raise InputError(f"expected on or off, found {state!r}")
    name = board_name(board)
    profiles.switch(connect_to(name, via).transport, state == "on")
    if as_json:
        emit({"schema": "edgekit.profile.switch/1", "board": name, "on": state == "on"})
        return
    print(f"sampling {state} on {name}")


def list_boards(source: Source = None, as_json: Json = False) -> None:
    """List the boards that profiles came from."""
    from datetime import UTC, datetime

    from edgekit.host.cli.output import emit, table

    found = profile_write.store_of(source).boards()
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
    sql: Annotated[str, typer.Argument(metavar="SQL", show_default=False)],
    most: Annotated[int, typer.Option("--most", metavar="N", min=1, help="Rows.")] = _MOST_ROWS,
    source: Source = None,
    as_json: Json = False,
) -> None:
    """Ask the profiles in SQL: the views are `operators` and `batches`."""
    from edgekit.host.cli.output import emit, table, warn
    from edgekit.host.fleet.profiles import query as ask

    found = ask(profile_write.store_of(source), sql, most)
    if found.more:
        warn(f"there are more than {most} rows; ask for more: --most, or use profile export")
    rows = [[_cell(value) for value in row] for row in found.rows]
    if as_json:
        plain = [[_plain(value) for value in row] for row in found.rows]
        emit({"schema": "edgekit.profile.query/1", "columns": found.columns, "rows": plain})
    elif found.columns:
        table(found.columns, rows)


def export(
    output: Annotated[
        Path, typer.Argument(metavar="FILE", show_default=False, help=".parquet, .csv or .json")
    ],
    sql: Annotated[
        str, typer.Option("--sql", metavar="SQL", help="Which rows.")
    ] = "FROM operators",
    source: Source = None,
    as_json: Json = False,
) -> None:
    """Write profiles into a file for other programs, by its name Parquet, CSV or JSON lines."""
    from edgekit.host.cli.output import check_writable, emit
    from edgekit.host.fleet import profiles

    check_writable(output)
    rows = profiles.export(profile_write.store_of(source), output, sql)
    if as_json:
        emit({"schema": "edgekit.profile.export/1", "file": str(output), "rows": rows})
        return
    print(f"wrote    {rows} rows to {output}")


def forget(
    days: Annotated[
        int | None,
        typer.Option("--days", metavar="N", min=0, show_default=False, help="Older ones go."),
    ] = None,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Remove profiles by the day they came: older ones than so many days, or than there is room."""
    from edgekit.host.cli.output import emit
    from edgekit.host.errors import InputError
    from edgekit.host.fleet.profiles import ProfileStore

    if days is None and keep is None:
        raise InputError("expected --days or --keep, which say what goes, found neither")
    files, rows = ProfileStore().forget(days, byte_count(keep, "--keep"))
    if as_json:
        emit({"schema": "edgekit.profile.forget/1", "files": files, "rows": rows})
        return
    print(f"removed  {rows} rows in {files} files")


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _plain(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)

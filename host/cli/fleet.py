"""`edgekit fleet`: the boards of the inventory as one; which there are, and which are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.host.cli import complete, fleet_add, fleet_deploy, fleet_work
from edgekit.host.cli.fleet_options import Select
from edgekit.host.cli.options import Json, examples


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="The same work on many boards of the inventory.",
        epilog=examples(
            "edgekit fleet add --csv boards.csv --known-hosts known_hosts",
            "edgekit fleet list --select site=lab",
            "edgekit fleet doctor --select type=a57,name=pi-*",
        ),
        rich_markup_mode=None,
    )
    fleet_add.register(group)
    group.command(
        "list", epilog=examples("edgekit fleet list", "edgekit fleet list --select site=lab --json")
    )(list_boards)
    group.command(
        "select",
        epilog=examples(
            "edgekit fleet select type=a57,site!=lab", "edgekit fleet select name=pi-* name=door"
        ),
    )(select_boards)
    fleet_deploy.register(group)
    fleet_work.register(group)
    app.add_typer(group, name="fleet")


def list_boards(select: Select = None, as_json: Json = False) -> None:
    """List boards of the inventory with their labels. Asks none of them anything."""
    from edgekit.host.cli.board_add import entry_document, place
    from edgekit.host.cli.output import emit, table
    from edgekit.host.fleet import facts
    from edgekit.host.fleet import select as selected

    found = selected(select or (), Path.cwd())
    if as_json:
        documents = [{**entry_document(e), "type": facts(e)["type"]} for e in found]
        emit({"schema": "edgekit.fleet.list/1", "boards": documents})
        return
    rows = []
    for entry in found:
        labels = ",".join(f"{key}={value}" for key, value in sorted(entry.labels.items()))
        pinned = "pinned" if entry.host_key or entry.transport != "ssh" else "no host key"
        rows.append((entry.name, facts(entry)["type"], labels, place(entry), pinned))
    table(("name", "type", "labels", "at", "trust"), rows, left=5)
    print(f"{len(found)} board{'s' * (len(found) != 1)}")


def select_boards(
    selections: Annotated[
        list[str],
        typer.Argument(
            metavar="SELECTION...",
            show_default=False,
            autocompletion=complete.selections,
            help="KEY=VALUE, KEY!=VALUE, KEY, !KEY between commas; values may hold * and ?.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Print the names of the boards that a selection means, one on each line."""
    from edgekit.host.cli.output import emit
    from edgekit.host.fleet import select as selected

    names = [entry.name for entry in selected(selections, Path.cwd())]
    if as_json:
        emit({"schema": "edgekit.fleet.select/1", "selections": selections, "boards": names})
        return
    for name in names:
        print(name)

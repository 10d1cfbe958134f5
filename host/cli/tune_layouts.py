"""`edgekit tune layouts`: measures what channel-major kernels cost on a board."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.host.cli.options import Board, Json, Over, board_name, examples


def register(group: typer.Typer) -> None:
    """Adds the command to the group `tune`."""
    group.command(
        "layouts",
        epilog=examples("edgekit tune layouts", "edgekit tune layouts --board a57"),
    )(tune_layouts)


def tune_layouts(
    board: Board = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", show_default=False, help="Not your own table."),
    ] = None,
    via: Over = None,
    as_json: Json = False,
) -> None:
    """Measure pruned and dense layers on both layouts of images; `compile` chooses by that."""
    from edgekit.host.api import connect
    from edgekit.host.cli.output import emit, table
    from edgekit.host.tune.layout_tables import user_layout_table
    from edgekit.host.tune.layouts import tune_layouts as tune
    from edgekit.kb.board import load_board

    device = connect(board_name(board), via=via)
    path = output or user_layout_table(load_board(device.profile))
    found = tune(device, path)
    rates = {name: [r.product, r.value, r.piece] for name, r in found.rates.items()}
    if as_json:
        emit(
            {
                "schema": "edgekit.tune.layouts/1",
                "table": str(path),
                "unit": found.unit,
                "cases": found.cases,
                "error": found.error,
                "rates": rates,
            }
        )
        return
    rows = [[name, *(f"{v:.4g}" for v in values)] for name, values in rates.items()]
    table(["kernel", "product", "value", "piece"], rows)
    print(f"{found.unit}; {found.cases} operators measured, median error {found.error:.1%}")
    print(f"kept in {path}")

"""`edgekit fleet`: adds many boards and rolls out releases to them."""

from __future__ import annotations

import typer

from edgekit.host.cli import fleet_add, fleet_deploy
from edgekit.host.cli.options import examples


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Add many boards, and put releases into service on them.",
        epilog=examples(
            "edgekit fleet add --csv boards.csv --known-hosts known_hosts",
            "edgekit fleet deploy face.tflite --select type=a57 --canary 1 --batch 20%",
            "edgekit status --rollout newest",
        ),
        rich_markup_mode=None,
    )
    fleet_add.register(group)
    fleet_deploy.register(group)
    app.add_typer(group, name="fleet")

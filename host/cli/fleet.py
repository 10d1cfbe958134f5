"""`edgekit fleet`: adds many boards, rolls out releases to them and serves them."""

from __future__ import annotations

import typer

from edgekit.host.cli import fleet_add, fleet_deploy, fleet_serve
from edgekit.host.cli.options import examples


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Add, update and serve many boards.",
        epilog=examples(
            "edgekit fleet add --csv boards.csv --known-hosts known_hosts",
            "edgekit fleet deploy face.tflite --select type=a57 --canary 1 --batch 20%",
            "edgekit status --rollout newest",
            "edgekit fleet serve --releases releases",
        ),
        rich_markup_mode=None,
    )
    fleet_add.register(group)
    fleet_deploy.register(group)
    fleet_serve.register(group)
    app.add_typer(group, name="fleet")

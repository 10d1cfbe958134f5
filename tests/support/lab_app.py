"""The commands of `edgekit lab`, which get what a test gives them."""

from __future__ import annotations

import typer

from edgekit.host.cli import lab


def lab_with(given: object) -> typer.Typer:
    """Commands that look for an object of that class find `given`."""
    app = typer.Typer(context_settings={"obj": given})
    lab.register(app)
    return app

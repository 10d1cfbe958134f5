"""Placeholder while its API is being written."""

import typer


def register(app: typer.Typer) -> None:
    pass

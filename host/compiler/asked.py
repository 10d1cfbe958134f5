"""The command line option that a field of the compile options has."""

from __future__ import annotations

from dataclasses import dataclass

ASKED = "asked"  # metadata key of a field's `Asked`


@dataclass(frozen=True)
class Asked:
    """The command line option for a field; `cli_option` explains them."""

    help: str
    flag: str
    metavar: str
    compile_only: bool
    release_only: bool
    least: int | None


def cli_option(
    help_text: str,
    *,
    flag: str = "",
    metavar: str = "",
    compile_only: bool = False,
    release_only: bool = False,
    least: int | None = None,
) -> dict[str, Asked]:
    """Metadata of a field with a command line option; `help_text` describes it.

    `flag` is the option's name if it differs from the field's. `compile_only` hides it from other
    commands that compile, and `release_only` from all but it and `deploy`. `least` is the smallest
    number it takes.
    """
    return {ASKED: Asked(help_text, flag, metavar, compile_only, release_only, least)}

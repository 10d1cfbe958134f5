"""What the commands of `edgekit fleet` share."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.host.cli import complete

Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="SELECTION",
        show_default=False,
        autocompletion=complete.selections,
        help="Boards: type=a57,site!=lab,name=pi-*; again for more. Default: all in the inventory.",
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        metavar="N",
        min=1,
        max=512,
        show_default=False,
        help="Boards at a time. Default: 32.",
    ),
]

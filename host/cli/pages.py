"""Reports as files: pages and traces that commands write beside what they do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from edgekit.host.report import Report

Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE.html",
        show_default=False,
        help="Write a page with the operators, the graph, and why each kernel was chosen.",
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE.json",
        show_default=False,
        help="Write the medians of the operators as a trace for Perfetto.",
    ),
]


def utc_now() -> datetime:
    """The moment that a report says it was made at."""
    return datetime.now(UTC)


def check_pages(page_file: Path | None, trace_file: Path | None) -> None:
    """Finds out before any work that these cannot be written; raises InputError."""
    from edgekit.host.cli.output import check_writable

    for file in (page_file, trace_file):
        if file is not None:
            check_writable(file)


def write_pages(
    page_file: Path | None, trace_file: Path | None, make: Callable[[], Report]
) -> None:
    """Writes what was asked for, if anything; each file is there whole or not at all."""
    if page_file is None and trace_file is None:
        return
    from edgekit.host.common.files import atomic_write
    from edgekit.host.report import page, trace

    made = make()
    if page_file is not None:
        atomic_write(page_file, page(made).encode())
    if trace_file is not None:
        atomic_write(trace_file, trace(made))

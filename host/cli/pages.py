"""Writes report pages and traces for commands that support them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.options import writes

if TYPE_CHECKING:
    from edgekit.host.report import Report

Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        parser=writes("report.html"),
        metavar="FILE.html",
        show_default=False,
        help="Write a page with the operators, the graph, and why each kernel was chosen.",
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        parser=writes("trace.json"),
        metavar="FILE.json",
        show_default=False,
        help="Write the medians of the operators as a trace for Perfetto.",
    ),
]


def utc_now() -> datetime:
    """The creation time shown in a report."""
    return datetime.now(UTC)


def check_pages(page_file: Path | None, trace_file: Path | None) -> None:
    """Checks that both files can be written, before any work; raises InputError."""
    from edgekit.host.cli.output import check_writable

    for file in (page_file, trace_file):
        if file is not None:
            check_writable(file)


def write_pages(
    page_file: Path | None, trace_file: Path | None, make: Callable[[], Report]
) -> None:
    """Writes the requested files, if any, each atomically."""
    if page_file is None and trace_file is None:
        return
    from edgekit.host.common.files import atomic_write
    from edgekit.host.report import page, trace

    made = make()
    if page_file is not None:
        atomic_write(page_file, page(made).encode())
    if trace_file is not None:
        atomic_write(trace_file, trace(made))

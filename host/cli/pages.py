"""Reports as files: pages and traces that commands write beside what they do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.host.report import Report


def utc_now() -> datetime:
    """The moment that a report says it was made at."""
    return datetime.now(UTC)


def check_pages(page_file: Path | None, trace_file: Path | None) -> None:
    """Finds out before any work that these cannot be written; raises InputError."""
    from edgekit.host.cli.output import check_writable

    for file in (page_file, trace_file):
        if file is not None:
            check_writable(file)


def write_pages(report: Report, page_file: Path | None, trace_file: Path | None) -> None:
    """Writes what was asked for; each file is there whole or not at all."""
    from edgekit.host.files import write_whole
    from edgekit.host.report import page, trace

    if page_file is not None:
        write_whole(page_file, page(report).encode())
    if trace_file is not None:
        write_whole(trace_file, trace(report))

"""How commands speak: results on stdout, everything else on stderr; rich only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.host.errors import InputError
from edgekit.host.text import printable


def emit(document: Mapping[str, Any]) -> None:
    """The one JSON document of a command with --json."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def note(text: str) -> None:
    """One line for people that is not the result."""
    print(printable(text), file=sys.stderr)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """A table on stdout: the first `left` columns start at the left, the others end at the right.

    Plain aligned lines when stdout is no terminal.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(headers, rows, left)
        return
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    for row in (headers, *rows):
        cells = (
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, header in enumerate(headers):
        drawn.add_column(header, justify="left" if i < left else "right")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


def byte_size(count: int) -> str:
    """`count` bytes for people: 512 B, 48 KiB, 2 MiB, 1.5 GiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


def show_shapes(variants: Sequence[Mapping[str, tuple[int, ...]]]) -> None:
    """One line per set of input shapes, where a release has several."""
    from edgekit.device.variants import shapes_text

    for shapes in variants if len(variants) > 1 else ():
        print(f"shapes    {shapes_text(shapes)}")


def check_writable(file: Path) -> None:
    """Finds out before minutes of work that `file` cannot be written; raises InputError."""
    if file.is_dir():
        raise InputError(f"{file}: expected a file to write, found a folder; name a file in it")
    if file.exists() and not file.is_file():
        raise InputError(f"{file}: expected a file to write, found a device or pipe; name a file")
    if not file.parent.is_dir():
        raise InputError(
            f"{file}: expected its folder to exist, found none; make it: mkdir -p {file.parent}"
        )
    if not os.access(file.parent, os.W_OK):
        raise InputError(
            f"{file}: expected a folder one may write to, found none; choose another place"
        )

"""Command output: results on stdout, everything else on stderr; rich only on a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO

import typer

from edgekit.host.common.text import printable
from edgekit.host.errors import InputError

_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}
_SHORT_MS = 0.1  # shorter times are printed in microseconds
_UNBOUND = 10_000  # columns of a console that never wraps
_PADDING = 3  # characters around a column
_SHORTEST_NAME = 16


def emit(document: Mapping[str, Any]) -> None:
    """Prints the single JSON document of a command with --json."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def note(text: str, label: str = "", verdict: str = "") -> None:
    """Prints one line that is not the result, after a `label` in the color of its verdict.

    A closed stderr is ignored: it is no reason to stop in the middle of a deployment.
    """
    begins = f"{painted(label, verdict, sys.stderr)} " if label else ""
    try:
        print(f"{begins}{printable(text)}", file=sys.stderr, flush=True)
    except BrokenPipeError:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123


def warn(text: str) -> None:
    """Prints one line about a possible problem that does not stop the work."""
    note(text, "warning:", "warn")


def painted(text: str, verdict: str, stream: TextIO | None = None) -> str:
    """`text` in the color for ok, warn or fail, if the stream shows colors and the user wants
    them."""
    out = stream or sys.stdout
    color = _COLORS.get(verdict)
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return typer.style(text, fg=color, bold=True) if color and wanted and out.isatty() else text


def milliseconds(value: float) -> str:
    """A time for a table in milliseconds: three decimals, or as many as show three digits."""
    return f"{value:.3f}" if value >= _SHORT_MS or value <= 0 else f"{value:.3g}"


def duration(*values: float) -> tuple[str, ...]:
    """Formats times in ms with their common unit: µs where ms would show no significant digits."""
    if 0 < values[0] < _SHORT_MS:
        return (*(f"{1000 * value:.2f}" for value in values), "µs")
    return (*(f"{value:.3f}" for value in values), "ms")


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    drop: Sequence[int] = (),
    names: bool = False,
) -> None:
    """Prints a table: the first `left` columns left-aligned, the others right-aligned.

    Plain aligned lines if stdout is not a terminal. On one that is too narrow the columns `drop`
    are left out, in this order, as far as needed; then, with `names`, the middle of the first
    column's long words.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(headers, rows, left, drop, names)
        return
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    for row in (headers, *rows):
        cells = (
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def _rich_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int,
    drop: Sequence[int],
    names: bool,
) -> None:
    from rich.console import Console

    columns = Console().width
    shown = list(range(len(headers)))
    for dropped in (None, *drop):
        shown = [i for i in shown if i != dropped]
        least = [_longest_word(row[i] for row in (headers, *rows)) for i in shown]
        room = columns - sum(least) - _PADDING * len(shown)
        if room >= 0:
            break
    if names and room < 0:
        most = max(least[0] + room, _SHORTEST_NAME)
        rows = [(_without_middle(row[0], most), *row[1:]) for row in rows]
    kept = [[row[i] for i in shown] for row in (headers, *rows)]
    _draw(kept[0], kept[1:], sum(i < left for i in shown))


def _draw(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, header in enumerate(headers):
        justify: Literal["left", "right"] = "left" if i < left else "right"
        cells = [row[i] for row in (headers, *rows)]
        least = _longest_word(cells)
        # Else rich narrows a column of single words instead of one that can wrap.
        whole = least == max(map(len, cells))
        drawn.add_column(header, justify=justify, min_width=least, no_wrap=whole)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console = Console()
    # Never break words: if the terminal is narrower than the longest ones, let lines wrap.
    unbound = console.options.update(width=_UNBOUND)
    least_width = Measurement.get(console, unbound, drawn).minimum
    Console(width=max(console.width, least_width)).print(drawn, crop=False)


def _longest_word(cells: Iterable[str]) -> int:
    return max(len(word) for cell in cells for word in cell.split() or [""])


def _without_middle(text: str, most: int) -> str:
    """At most `most` characters of a text: its two ends, which tell names apart."""
    if len(text) <= most:
        return text
    end = most // 2
    return f"{text[: most - end - 1]}…{text[-end:]}"


def three_digits(value: float) -> str:
    """Formats a time with three significant digits: 0.123, 1.23, 12.3, 123, 1234."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def byte_size(count: int) -> str:
    """Formats `count` bytes: 512 B, 48 KiB, 2 MiB, 1.5 GiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


def show_variants(
    shapes: Sequence[Mapping[str, tuple[int, ...]]], signatures: Sequence[str]
) -> None:
    """Prints one line per signature and set of input shapes, if a release has several;
    `signatures` is empty or has that of each."""
    from edgekit.device.runtime.agent.variants import shapes_text

    if signatures:
        for name, each in zip(signatures, shapes, strict=True):
            print(f"signature {name} ({shapes_text(each)})")
    elif len(shapes) > 1:
        for each in shapes:
            print(f"shapes    {shapes_text(each)}")


def check_writable(file: Path) -> None:
    """Checks that `file` can be written, before minutes of work; raises InputError."""
    if file.is_dir():
        raise InputError(f"{file}: expected a file to write, found a folder; name a file in it")
    if file.exists() and not file.is_file():
        raise InputError(f"{file}: expected a file to write, found a device or pipe; name a file")
    if not file.parent.is_dir():
        raise InputError(
            f"{file}: expected its folder to exist, found none; make it: mkdir -p {file.parent}"
        )
    if not os.access(file.parent, os.W_OK):
        raise InputError(f"{file}: expected a writable folder, found none; choose another one")

"""Command output: results on stdout, everything else on stderr; rich only on a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO

import typer

from edgekit.host.common.text import printable
from edgekit.host.errors import InputError

_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}
_SHORT_MS = 0.1  # shorter times are printed in microseconds
_PADDING = 3  # characters around a column
_SHORTEST_NAME = 12
_ONE_LINE = 16  # characters of a cell that is not worth two lines


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
    column's long words. If words still do not fit, each row becomes a list.
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

    columns = Console().width - 1
    shown = list(range(len(headers)))
    for dropped in (None, *drop):
        shown = [i for i in shown if i != dropped]
        wanted = [_wanted_width(headers[i], [row[i] for row in rows]) for i in shown]
        room = columns - sum(wanted) - _PADDING * len(shown)
        if room >= 0:
            break
    if names and room < 0:
        most = max(wanted[0] + room, _SHORTEST_NAME)
        short = _shortened([row[0] for row in rows], most)
        rows = [(name, *row[1:]) for name, row in zip(short, rows, strict=True)]
    kept = [[row[i] for i in shown] for row in (headers, *rows)]
    widths = _fitted_widths(kept, columns - _PADDING * len(shown))
    if widths:
        _draw(kept[0], kept[1:], sum(i < left for i in shown), widths)
    else:
        _print_lists(headers, rows)


def _wanted_width(header: str, cells: Sequence[str]) -> int:
    """The width at which short cells have one line, and longer ones about two."""
    widths = (len(c) if len(c) <= _ONE_LINE else max(len(c) // 2, _longest_word(c)) for c in cells)
    return max((_longest_word(header), *widths))


def _fitted_widths(rows: Sequence[Sequence[str]], most: int) -> list[int]:
    """The widths of columns that together have at most `most` characters, and break no word; none
    if that is not possible. The widest column gives way first."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(map(_longest_word, column)) for column in columns]
    if sum(least) > most:
        return []
    for _ in range(sum(widths) - most):
        widest = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
        widths[widest] -= 1
    return widths


def _draw(
    headers: Sequence[str], rows: Sequence[Sequence[str]], left: int, widths: Sequence[int]
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, (header, width) in enumerate(zip(headers, widths, strict=True)):
        justify: Literal["left", "right"] = "left" if i < left else "right"
        drawn.add_column(header, justify=justify, width=width)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


def _print_lists(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints each row as lines of a header and a cell."""
    width = max(map(len, headers))
    for number, row in enumerate(rows):
        if number:
            print()
        for header, cell in zip(headers, row, strict=True):
            print(f"{header.ljust(width)}  {cell}".rstrip())


def _longest_word(text: str) -> int:
    return max(map(len, text.split() or [""]))


def _shortened(names: Sequence[str], most: int) -> list[str]:
    """Names of at most `most` characters, without a part near their middle. Different names stay
    different where one place to cut allows it."""
    for end in sorted(range(most), key=lambda end: abs(end - most // 2)):
        short = [_cut(name, most, end) for name in names]
        if len(set(short)) == len(set(names)):
            return short
    return [_cut(name, most, most // 2) for name in names]


def _cut(name: str, most: int, end: int) -> str:
    """At most `most` characters of a name, the last `end` of them from its end."""
    if len(name) <= most:
        return name
    return f"{name[: most - end - 1]}…{name[len(name) - end :]}"


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


def memory_text(arena: int | None, weights: int, states: int | None) -> str:
    """The memory of a model, given in bytes; an arena of None is unknown."""
    shown = "unknown" if arena is None else byte_size(arena)
    kept = f", states {byte_size(states)}" if states else ""
    return f"arena {shown}, weights {byte_size(weights)}{kept}"


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

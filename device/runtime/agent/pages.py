"""Pages of text: the boxes that one model finds, read line by line by another."""

from __future__ import annotations

import math
from typing import Callable, List, NamedTuple, Sequence, Tuple

from edgekit.device.runtime.agent.fitting import Box
from edgekit.device.runtime.agent.lines import Line

_COLORS = 3
_LEAST = 0.5  # score of a line, as in PaddleOCR's program
_UPRIGHT = 1.5  # times as high as wide: such a line runs from top to bottom
_ROW = 0.5  # of the lower one's height: boxes that overlap so are in a row
_SEARCH = 0.4  # of a piece, at its end: where a line may be cut
_SPACE = 0.2  # of a line's height: a gap so wide is a space
_CALM = 32  # levels between the darkest and the brightest pixel of a gap, at most


class TextLine(NamedTuple):
    """A line of a page: its text, how sure the model is, 0 to 1, and its corners in pixels."""

    text: str
    score: float
    left: float
    top: float
    right: float
    bottom: float


class Crop(NamedTuple):
    """A part of a picture: rows of red, green and blue bytes."""

    pixels: bytes
    width: int
    height: int


def read_page(page: Crop, boxes: Sequence[Box], read: Callable[[Crop], Line]) -> List[TextLine]:
    """The lines that `read` reads in the boxes of a page, in rows from the top, each from the left.
    Boxes without text, and with one that is hardly sure, are left out."""
    found = []
    for box in in_rows(boxes):
        line = read(cut(page, box))
        if line.text.strip() and line.score >= _LEAST:
            found.append(TextLine(line.text, line.score, *box[2:6]))
    return found


def read_line(line: Crop, aspect: float, read: Callable[[Crop], Line]) -> Line:
    """Reads a line: `read` takes pieces whose width is at most `aspect` times their height. The
    score is the mean over the characters."""
    text, total = "", 0.0
    for piece, is_apart in pieces_of(line, aspect):
        found = read(piece)
        text += " " * (is_apart and bool(text) and not text.endswith(" ")) + found.text
        total += found.score * len(found.text)
    return Line(text, total / len(text) if text else 0.0)


def in_rows(boxes: Sequence[Box]) -> List[Box]:
    """The boxes in the order of reading: rows from the top, each from the left."""
    rows: List[List[Box]] = []
    for box in sorted(boxes, key=lambda each: each.top):
        if rows and _share_a_row(rows[-1][0], box):
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda each: each.left)]


def _share_a_row(first: Box, other: Box) -> bool:
    common = min(first.bottom, other.bottom) - max(first.top, other.top)
    return common >= _ROW * min(first.bottom - first.top, other.bottom - other.top)


def cut(page: Crop, box: Box) -> Crop:
    """The pixels of a box; a line that runs from top to bottom is turned counterclockwise."""
    left, top = max(math.floor(box.left), 0), max(math.floor(box.top), 0)
    right, bottom = min(math.ceil(box.right), page.width), min(math.ceil(box.bottom), page.height)
    rows = (
        page.pixels[_COLORS * (y * page.width + left) : _COLORS * (y * page.width + right)]
        for y in range(top, bottom)
    )
    made = Crop(b"".join(rows), right - left, bottom - top)
    return _turned(made) if made.height >= _UPRIGHT * made.width else made


def _turned(crop: Crop) -> Crop:
    stride = _COLORS * crop.width
    made = bytearray()
    for x in reversed(range(crop.width)):
        row = bytearray(_COLORS * crop.height)
        for color in range(_COLORS):
            row[color::_COLORS] = crop.pixels[_COLORS * x + color :: stride]
        made += row
    return Crop(bytes(made), crop.height, crop.width)


def pieces_of(line: Crop, aspect: float) -> List[Tuple[Crop, bool]]:
    """Pieces of a line that are at most `aspect` times as wide as high, cut where nothing is
    written, and whether a space is before each; none for an empty end."""
    most = max(int(aspect * line.height), 1)
    start, is_apart, made = 0, False, []
    while line.width - start > most:
        end, gap = _gap_in(line, start + most - int(_SEARCH * most), start + most)
        made.append((_columns(line, start, end), is_apart))
        start, is_apart = end, gap >= _SPACE * line.height
    if not made or any(_spread(line, x) > _CALM for x in range(start, line.width)):
        made.append((_columns(line, start, line.width), is_apart))
    return made


def _gap_in(line: Crop, low: int, high: int) -> Tuple[int, int]:
    """The middle and the width of the widest gap between these columns, the last one of several; if
    there is none, the column that differs least from top to bottom."""
    spread = [_spread(line, x) for x in range(low, high)]
    best, width, run = high, 0, 0
    for i, value in enumerate(spread, 1):
        run = run + 1 if value <= _CALM else 0
        if run >= max(width, 1):
            best, width = low + i - run // 2, run
    if not width:
        least = min(spread)
        best = low + len(spread) - spread[::-1].index(least)
    return best, width


def _spread(line: Crop, x: int) -> int:
    """The most levels between the pixels of a column, in any color."""
    colors = (line.pixels[_COLORS * x + color :: _COLORS * line.width] for color in range(_COLORS))
    return max(max(column) - min(column) for column in colors)


def _columns(line: Crop, start: int, end: int) -> Crop:
    stride = _COLORS * line.width
    rows = (
        line.pixels[y * stride + _COLORS * start : y * stride + _COLORS * end]
        for y in range(line.height)
    )
    return Crop(b"".join(rows), end - start, line.height)

"""Pages of text: the boxes that one model finds, read line by line by another."""

from __future__ import annotations

import math
from typing import Callable, List, NamedTuple, Sequence, Tuple

from edgekit.device.runtime.agent.lines import Line
from edgekit.device.runtime.agent.rotated import Corner, Rotated

_COLORS = 3
_LEAST = 0.5  # score of a line, as in PaddleOCR's program
_UPRIGHT = 1.5  # times as high as wide: such a line runs from top to bottom
_LEVEL = 1.0  # pixels by which the sides of a box may be askew
_PARTS = 256  # of a pixel
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


def read_page(page: Crop, boxes: Sequence[Rotated], read: Callable[[Crop], Line]) -> List[TextLine]:
    """The lines that `read` reads in the boxes of a page, in rows from the top, each from the left.
    Boxes without text, and with one that is hardly sure, are left out."""
    found = []
    for each in in_rows(boxes):
        line = read(cut(page, each))
        if line.text.strip() and line.score >= _LEAST:
            found.append(TextLine(line.text, line.score, *each.box[2:6]))
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


def in_rows(boxes: Sequence[Rotated]) -> List[Rotated]:
    """The boxes in the order of reading: rows from the top, each from the left. Rows rise or fall
    as most lines do."""
    outlines = [_from_left(each.corners) for each in boxes]
    slopes = sorted((b[1] - a[1]) / (b[0] - a[0]) for a, b, *_ in outlines)
    spans = [_span(outline, slopes[len(slopes) // 2]) for outline in outlines]
    rows: List[List[int]] = []
    for i in sorted(range(len(boxes)), key=spans.__getitem__):
        if rows and _share_a_row(spans[rows[-1][0]], spans[i]):
            rows[-1].append(i)
        else:
            rows.append([i])
    return [boxes[i] for row in rows for i in sorted(row, key=lambda i: boxes[i].box.left)]


def _from_left(corners: Sequence[Corner]) -> Sequence[Corner]:
    """The corners of a box, clockwise from its upper left one: the next one is to the right."""
    for i in range(len(corners)):
        (x, y), (next_x, next_y) = corners[i], corners[(i + 1) % len(corners)]
        if abs(next_y - y) <= next_x - x and next_x > x:
            return (*corners[i:], *corners[:i])
    return corners


def _span(outline: Sequence[Corner], slope: float) -> Tuple[float, float]:
    """Where a line begins and ends from top to bottom, on a page that was turned to be level."""
    center = sum(y - slope * x for x, y in outline) / len(outline)
    height = _distance(outline[0], outline[3])
    return center - height / 2, center + height / 2


def _distance(a: Corner, b: Corner) -> float:
    return math.hypot(b[0] - a[0], b[1] - a[1])


def _share_a_row(first: Tuple[float, float], other: Tuple[float, float]) -> bool:
    common = min(first[1], other[1]) - max(first[0], other[0])
    return common >= _ROW * min(first[1] - first[0], other[1] - other[0])


def cut(page: Crop, found: Rotated) -> Crop:
    """The pixels of a box, made level; a line that runs from top to bottom is turned
    counterclockwise."""
    corners = _from_left(found.corners)
    (x, y), right, _, down = corners
    if abs(right[1] - y) > _LEVEL or abs(down[0] - x) > _LEVEL:
        if _distance(corners[0], down) >= _UPRIGHT * _distance(corners[0], right):
            corners = (*corners[1:], corners[0])
        return _leveled(page, corners)
    box = found.box
    left, top = max(math.floor(box.left), 0), max(math.floor(box.top), 0)
    end, bottom = min(math.ceil(box.right), page.width), min(math.ceil(box.bottom), page.height)
    rows = (
        page.pixels[_COLORS * (y * page.width + left) : _COLORS * (y * page.width + end)]
        for y in range(top, bottom)
    )
    made = Crop(b"".join(rows), end - left, bottom - top)
    return _turned(made) if made.height >= _UPRIGHT * made.width else made


def _leveled(page: Crop, corners: Sequence[Corner]) -> Crop:
    """The pixels within corners, clockwise from the upper left one; between pixels, those around
    count by how near they are. Pixels at the edge continue outside."""
    start, right, _, down = corners
    width, height = (max(round(_distance(start, end)), 1) for end in (right, down))
    # In parts of a pixel, from the center of the page's first one.
    step = [_PARTS * (end - begin) / width for begin, end in zip(start, right)]
    fall = [_PARTS * (end - begin) / height for begin, end in zip(start, down)]
    first = [
        _PARTS * (begin - 0.5) + (across + under) / 2
        for begin, across, under in zip(start, step, fall)
    ]
    made = bytearray()
    for row in range(height):
        x, y = (begin + row * under for begin, under in zip(first, fall))
        for column in range(width):
            made += _between(page, int(x + column * step[0]), int(y + column * step[1]))
    return Crop(bytes(made), width, height)


def _between(page: Crop, x: int, y: int) -> bytes:
    """The color at a place, in parts of a pixel."""
    x = min(max(x, 0), _PARTS * (page.width - 1))
    y = min(max(y, 0), _PARTS * (page.height - 1))
    left, after, top, under = x // _PARTS, x % _PARTS, y // _PARTS, y % _PARTS
    pixels, at = page.pixels, _COLORS * (top * page.width + left)
    beside = at + _COLORS if after else at
    below = _COLORS * page.width if under else 0
    before, over = _PARTS - after, _PARTS - under
    a, b, c, d = over * before, over * after, under * before, under * after
    return bytes(
        (
            a * pixels[at + i]
            + b * pixels[beside + i]
            + c * pixels[at + below + i]
            + d * pixels[beside + below + i]
        )
        // _PARTS**2
        for i in range(_COLORS)
    )


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

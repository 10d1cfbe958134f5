"""Boxes and poses that a model found: listed, drawn and written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.device.runtime.agent.fitting import Box, Point, Pose
from edgekit.device.runtime.agent.instances import Instance
from edgekit.device.runtime.agent.rotated import Rotated
from edgekit.host.common.files import atomic_write
from edgekit.host.common.optional import optional
from edgekit.host.compiler.tasks.coco import COCO, COCO_IDS

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Area = tuple[float, float, float, float]  # left, top, right, bottom
FORMS = (".json", ".csv")
_COLORS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000")
_LINES = 320  # a line is this part of the picture's longer side
_TEXT = 40
_LOW = 3  # heights of a label
_SEEN = 0.5  # score of a point
_LIMB, _POINT = "#42d4f4", "#ffe119"
_PERSON = 17  # points: nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles
_LIMBS = (
    (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10), (5, 11), (6, 12),
    (11, 12), (11, 13), (13, 15), (12, 14), (14, 16),
)  # fmt: skip


def box_lines(
    poses: Sequence[Pose],
    instances: Sequence[Instance] | None,
    rotated: Sequence[Rotated] | None,
) -> list[str]:
    """The boxes as a table: score, corners in whole pixels, label, and how many points are seen,
    how many pixels are of the object, or by how much the box is rotated."""
    more = [f", {each.area} pixels" for each in instances or ()]
    more += [f", {each.angle:.0f}°" for each in rotated or ()]
    return [
        f"  {b.score:6.3f}  {b.left:6.0f} {b.top:6.0f} {b.right:6.0f} {b.bottom:6.0f}  {b.name}"
        + (f", {sum(map(_is_seen, points))} of {len(points)} points" if points else "")
        + (more[i] if more else "")
        for i, (b, points) in enumerate(poses)
    ]


def draw(
    picture: Picture,
    poses: Sequence[Pose],
    target: Path,
    rotated: Sequence[Rotated] | None = None,
) -> None:
    """Writes the picture as PNG with boxes, labels and points, the best on top. Boxes that are
    `rotated` are drawn so."""
    drawing, fonts = optional("PIL.ImageDraw", "PIL.ImageFont")
    canvas = drawing.Draw(picture)
    width = max(1, round(max(picture.size) / _LINES))
    font = fonts.load_default(max(10, round(max(picture.size) / _TEXT)))
    outlines = [each.corners for each in rotated or ()]
    for box, points in reversed(poses):
        color = color_of(box)
        if outlines:
            ring = outlines.pop()
            canvas.line([*ring, *ring[:2]], fill=color, width=width, joint="curve")
        else:
            canvas.rectangle((box.left, box.top, box.right, box.bottom), outline=color, width=width)
        _draw_points(canvas, points, width)
    labels: list[tuple[Box, str, Area]] = []
    for box, _ in poses:
        text = f"{box.name} {box.score:.2f}"
        _, _, wide, high = canvas.textbbox((0, 0), text, font=font)
        size = wide + 2 * width, high + 2 * width
        taken, low = [each for *_, each in labels], low_boxes(poses, size[1])
        if area := label_area(box, size, picture.size, taken, low):
            labels.append((box, text, area))
    for box, text, area in reversed(labels):
        canvas.rectangle(area, fill=color_of(box))
        canvas.text((area[0] + width, area[1] + width), text, fill="white", font=font)
    write_png(picture, target)


def low_boxes(poses: Sequence[Pose], high: float) -> list[Area]:
    """The boxes of which a label would leave little, such as lines of text."""
    return [(b.left, b.top, b.right, b.bottom) for b, _ in poses if b.bottom - b.top <= _LOW * high]


def label_area(
    box: Box,
    size: tuple[float, float],
    picture: tuple[int, int],
    taken: Sequence[Area],
    low: Sequence[Area] = (),
) -> Area | None:
    """Where the label of a box goes: above it, within a large one, or below it, where that is in
    the picture and covers no label that was placed before, and no low box; if nowhere, above or at
    the top. None if the box is low, or another low one would be covered there, too."""
    (wide, high), (width, height) = size, picture
    x = max(0.0, min(box.left, width - wide))
    above = box.top - high
    within = box.top if box.bottom - box.top > 2 * high else -1.0
    for y in (above, within, box.bottom):
        area = x, y, x + wide, y + high
        free = not any(_overlap(area, other) for other in (*taken, *low))
        if 0 <= y <= height - high and free:
            return area
    y = max(0.0, min(above, height - high))
    area = x, y, x + wide, y + high
    is_low = box.bottom - box.top <= _LOW * high
    return None if is_low or any(_overlap(area, other) for other in low) else area


def _overlap(a: Area, b: Area) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def color_of(box: Box) -> str:
    """The color of its class."""
    return _COLORS[box.number % len(_COLORS)]


def write_png(picture: Picture, target: Path) -> None:
    made = io.BytesIO()
    picture.save(made, "PNG")
    atomic_write(target, made.getvalue())


def _draw_points(canvas: Any, points: Sequence[Point], width: int) -> None:
    """Draws the points that are seen, and the limbs between those of COCO's persons."""
    limbs = _LIMBS if len(points) == _PERSON else ()
    for start, end in limbs:
        if _is_seen(points[start]) and _is_seen(points[end]):
            canvas.line((*points[start][:2], *points[end][:2]), fill=_LIMB, width=width)
    for x, y, _ in filter(_is_seen, points):
        canvas.ellipse((x - width, y - width, x + width, y + width), fill=_POINT)


def _is_seen(point: Point) -> bool:
    return point.score >= _SEEN


def coco_json(
    found: Sequence[tuple[Path, Sequence[Pose]]],
    labels: Sequence[str],
    outlines: Mapping[Path, Sequence[Any]],
) -> str:
    """Detections in the form of COCO's results: x, y, width and height in pixels. `outlines` has a
    mask or polygons for each detection of a file with such.

    The image's id is the number that its file is named, else the name. The category is COCO's id
    for COCO's classes, else the class's index.
    """
    ids = dict(zip(COCO, COCO_IDS, strict=True)) if {*labels} - {""} == {*COCO} else {}
    entries = [
        {
            "image_id": int(file.stem) if file.stem.isdecimal() else file.name,
            "category_id": ids.get(box.label, box.number),
            "category": box.name,
            "bbox": [round(v, 2) for v in (box.left, box.top, *_extents(box))],
            "score": round(box.score, 5),
            **({"keypoints": [round(v, 3) for p in points for v in p]} if points else {}),
            **({"segmentation": outlines[file][i]} if file in outlines else {}),
        }
        for file, poses in found
        for i, (box, points) in enumerate(poses)
    ]
    return "[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n"


def box_csv(found: Sequence[tuple[Path, Sequence[Pose]]]) -> str:
    """One line per detection, with corners in pixels; points are x, y and score of each."""
    made = io.StringIO()
    rows = csv.writer(made, lineterminator="\n")
    named = any(points for _, poses in found for _, points in poses)
    columns = ("input", "label", "class", "score", "left", "top", "right", "bottom")
    rows.writerow((*columns, "points") if named else columns)
    for file, poses in found:
        for b, points in poses:
            corners = (f"{v:.2f}" for v in (b.left, b.top, b.right, b.bottom))
            last = (" ".join(f"{v:.2f}" for p in points for v in p),) if named else ()
            rows.writerow((file.name, b.name, b.number, f"{b.score:.5f}", *corners, *last))
    return made.getvalue()


def _extents(box: Box) -> tuple[float, float]:
    return box.right - box.left, box.bottom - box.top

"""Boxes that a detector found: listed, drawn and written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.fitting import Box
from edgekit.host.common.files import atomic_write
from edgekit.host.common.optional import optional
from edgekit.host.compiler.tasks.coco import COCO, COCO_IDS

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

FORMS = (".json", ".csv")
_COLORS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000")
_LINES = 320  # a line is this part of the picture's longer side
_TEXT = 40


def box_lines(boxes: Sequence[Box]) -> list[str]:
    """The boxes as a table: score, corners in whole pixels, label."""
    return [
        f"  {b.score:6.3f}  {b.left:6.0f} {b.top:6.0f} {b.right:6.0f} {b.bottom:6.0f}  {b.name}"
        for b in boxes
    ]


def draw(picture: Picture, boxes: Sequence[Box], target: Path) -> None:
    """Writes the picture as PNG with its boxes and labels, the best on top."""
    drawing, fonts = optional("PIL.ImageDraw", "PIL.ImageFont")
    canvas = drawing.Draw(picture)
    width = max(1, round(max(picture.size) / _LINES))
    font = fonts.load_default(max(10, round(max(picture.size) / _TEXT)))
    for box in reversed(boxes):
        color = _COLORS[box.number % len(_COLORS)]
        canvas.rectangle((box.left, box.top, box.right, box.bottom), outline=color, width=width)
        text = f"{box.name} {box.score:.2f}"
        _, _, wide, high = canvas.textbbox((0, 0), text, font=font)
        x = max(0.0, min(box.left, picture.width - wide - 2 * width))
        y = max(0.0, box.top - high - 2 * width)
        canvas.rectangle((x, y, x + wide + 2 * width, y + high + 2 * width), fill=color)
        canvas.text((x + width, y + width), text, fill="white", font=font)
    made = io.BytesIO()
    picture.save(made, "PNG")
    atomic_write(target, made.getvalue())


def coco_json(found: Sequence[tuple[Path, Sequence[Box]]], labels: Sequence[str]) -> str:
    """Detections in the form of COCO's results: x, y, width and height in pixels.

    The image's id is the number that its file is named, else the name. The category is COCO's id
    for COCO's classes, else the class's index.
    """
    ids = COCO_IDS if tuple(labels) == COCO else range(1 << 16)
    entries = [
        {
            "image_id": int(file.stem) if file.stem.isdecimal() else file.name,
            "category_id": ids[box.number],
            "category": box.name,
            "bbox": [round(v, 2) for v in (box.left, box.top, *_extents(box))],
            "score": round(box.score, 5),
        }
        for file, boxes in found
        for box in boxes
    ]
    return "[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n"


def box_csv(found: Sequence[tuple[Path, Sequence[Box]]]) -> str:
    """One line per detection, with corners in pixels."""
    made = io.StringIO()
    rows = csv.writer(made, lineterminator="\n")
    rows.writerow(("input", "label", "class", "score", "left", "top", "right", "bottom"))
    for file, boxes in found:
        for b in boxes:
            corners = (f"{v:.2f}" for v in (b.left, b.top, b.right, b.bottom))
            rows.writerow((file.name, b.name, b.number, f"{b.score:.5f}", *corners))
    return made.getvalue()


def _extents(box: Box) -> tuple[float, float]:
    return box.right - box.left, box.bottom - box.top

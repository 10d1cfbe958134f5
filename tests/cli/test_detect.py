"""`edgekit run` of a detector: boxes in pixels of the picture, drawn and written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.detectors import best_boxes, detector, scattered

_SIZE = (64, 96)
_PICTURE = (200, 100)  # width, height: letterboxed to 96 x 48, 8 pixels from the top
_NAMES = {0: "cat", 1: "dog", 2: "hat"}


@pytest.fixture
def scene(home: Path) -> tuple[Path, list[tuple[int, float, tuple[float, ...]]]]:
    """A detector with Ultralytics' metadata, and the boxes that it finds in picture pixels."""
    count = 8 * 12 + 4 * 6 + 2 * 3
    boxes = scattered(count, _SIZE, 1)
    scores = (np.random.default_rng(1).random((count, 3)) ** 6).astype(np.float32)
    output = np.concatenate([boxes, scores], 1).T[None]
    path = detector(home, {"output0": output}, _SIZE, task="detect", names=_NAMES, imgsz=[64, 96])
    Image.new("RGB", _PICTURE, "gray").save(home / "street.png")
    found = []
    for label, score, (left, top, right, bottom) in best_boxes(boxes, scores, 0.25, 0.7):
        x0, x1 = (min(max(x / 0.48, 0), 200) for x in (left, right))
        y0, y1 = (min(max((y - 8) / 0.48, 0), 100) for y in (top, bottom))
        found.append((label, score, (x0, y0, x1, y1)))
    return path, found


def test_boxes_are_shown_drawn_and_written(edgekit, scene, home):
    path, expected = scene
    done = edgekit("run", path, "--input", "street.png", "--json")
    assert done.code == 0 and "finds boxes, by the file's metadata" in done.err
    (run,) = done.document["inputs"]
    assert len(run["boxes"]) == len(expected) > 3
    for box, (label, score, corners) in zip(run["boxes"], expected, strict=True):
        assert (box["index"], box["label"]) == (label, _NAMES[label])
        assert box["score"] == pytest.approx(score, abs=1e-5)
        edges = [box[side] for side in ("left", "top", "right", "bottom")]
        assert edges == pytest.approx(corners, abs=0.05)
    drawn = Image.open(home / "street.out.png")
    assert drawn.size == _PICTURE and len(drawn.getcolors(1 << 20)) > 3

    shown = edgekit("run", "--input", ".")  # what was deployed; not what was drawn before
    assert f"boxes    street.png: {len(expected)}\n" in shown.out
    assert shown.out.count("boxes ") == 1 and "drawn    street.out.png" in shown.out
    assert edgekit("run", "--input", "street.png", "--output", "boxes.json").code == 0
    coco = json.loads((home / "boxes.json").read_text())
    x, y, width, height = coco[0]["bbox"]
    assert (x, y, x + width, y + height) == pytest.approx(expected[0][2], abs=0.05)
    assert coco[0]["image_id"] == "street.png" and coco[0]["category_id"] == expected[0][0]
    assert edgekit("run", "--input", "street.png", "--output", "boxes.csv").code == 0
    with (home / "boxes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [_NAMES[label] for label, *_ in expected]


def test_inspect_says_what_run_would_do(edgekit, scene):
    path, _ = scene
    found = edgekit("inspect", path)
    assert "task           detect, by the file's metadata: letterbox" in found.out
    assert edgekit("inspect", path, "--json").document["task"]["labels"] == list(_NAMES.values())


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("text.png", lambda p: p.write_text("no picture"), "expected a picture that Pillow reads"),
        ("empty.jpg", lambda p: p.touch(), "expected a picture that Pillow reads"),
        ("nothing.png", lambda p: None, "expected a file or folder with inputs"),
    ],
)
def test_what_is_no_picture_is_one_line(edgekit, scene, home, name, make, said):
    make(home / name)
    done = edgekit("run", scene[0], "--input", name)
    assert done.code == 2 and said in done.err.splitlines()[-1]


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "I;16", "P", "1", "LA"])
def test_pictures_of_all_modes_are_taken(edgekit, scene, home, mode):
    Image.new("RGB", _PICTURE, "gray").convert("L").convert(mode).save(home / "p.tiff")
    done = edgekit("run", scene[0], "--input", "p.tiff", "--json")
    assert done.code == 0 and done.document["inputs"][0]["boxes"]

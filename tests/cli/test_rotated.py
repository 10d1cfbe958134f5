"""`edgekit run` of models that find rotated boxes, and the same on the board."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.application import open as open_on_board
from edgekit.host.compiler.options import CompileOptions
from tests.cli.test_detect import served
from tests.compiler.tasks.test_heads import prepared, rows_of
from tests.support.rotated import rotated

_SIZE = (64, 96)
_NAMES = {0: "plane", 1: "ship", 2: "court"}


def _same(boxes, expected) -> None:
    """Compares with corners in pixels of the input, in which the picture is half as large, 8 pixels
    from the top."""
    assert len(boxes) == len(expected)
    for box, (number, score, wanted) in zip(boxes, expected, strict=True):
        assert box["number"] == number and box["score"] == pytest.approx(score, abs=1e-5)
        corners = (wanted - (0, 8)) / 0.48
        np.testing.assert_allclose(box["corners"], corners, atol=0.02)
        edges = [*corners.min(0), *corners.max(0)]
        limits = [200, 100, 200, 100]
        found = [box[side] for side in ("left", "top", "right", "bottom")]
        np.testing.assert_allclose(found, np.clip(edges, 0, limits), atol=0.02)


@pytest.fixture
def harbor(home):
    Image.new("RGB", (200, 100), "gray").save(home / "harbor.png")
    return home / "harbor.png"


@pytest.mark.slow
def test_rotated_boxes_are_shown_drawn_and_written(edgekit, home, harbor):
    path, expected = rotated(home, _SIZE, task="obb", names=_NAMES)
    assert len(expected) > 5
    done = edgekit("run", path, "--input", harbor, "--json")
    assert done.code == 0, done.err
    assert "finds rotated boxes, by the file's metadata" in done.err
    (run,) = done.document["inputs"]
    _same(run["boxes"], expected)
    (_, _, first) = expected[0]
    sides = first[1] - first[0], first[2] - first[1]
    across, down = max(sides, key=np.linalg.norm)
    angle = np.degrees(np.arctan2(down, across)) % 180
    assert f"{run['boxes'][0]['label']}, {angle:.0f}°\n" in edgekit("run", "--input", harbor).out
    drawn = np.asarray(Image.open(home / "harbor.out.png"))
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 4
    for name in ("o.json", "o.csv"):
        assert edgekit("run", "--input", harbor, "--output", name).code == 0
    (ring,) = json.loads((home / "o.json").read_text())[0]["segmentation"]
    np.testing.assert_allclose(np.reshape(ring, (4, 2)), run["boxes"][0]["corners"], atol=0.01)
    root = home.parent / "home/boards/local"
    with open_on_board(root=root) as model:
        picture = np.asarray(Image.open(harbor))
        found = model.obb(picture)
        assert [each.box for each in found] == model.detect(picture)
    _same([{**each.box._asdict(), "corners": each.corners} for each in found], expected)
    answers = served(home, root, {"/obb": harbor.read_bytes()})
    found = json.loads(answers["/obb"][1])["rotated"]
    _same([{**each["box"], "corners": each["corners"]} for each in found], expected)


def _corners_and_labels(made):
    rows = rows_of(made, 7 + 4 * 3)
    return [(label, score, np.reshape(rest[4:], (4, 3))[:, :2]) for label, score, rest in rows]


@pytest.mark.parametrize("selects", [False, True])
def test_the_operators_or_the_metadata_show_rotated_boxes(tmp_path, selects):
    about = {"task": "obb", "names": _NAMES} if selects else {}
    path, expected = rotated(tmp_path, _SIZE, selects=selects, **about)
    for task in ("detect", "auto" if selects else "guess"):
        made = prepared(path, CompileOptions(task=task))
        assert made.task is not None and made.task.kind == "obb"
        found = [each for each in _corners_and_labels(made) if each[1] >= 0.25]
        assert len(found) == len(expected)
        for (number, score, ring), wanted in zip(found, expected, strict=True):
            assert number == wanted[0] and score == pytest.approx(wanted[1], abs=1e-6)
            np.testing.assert_allclose(ring, wanted[2], atol=2e-3)


def test_what_is_no_picture_is_refused_by_the_task_as_it_is_asked_for(edgekit, home):
    path, _ = rotated(home, _SIZE, task="obb", names=_NAMES)
    (home / "a.wav").write_bytes(b"RIFF")
    done = edgekit("run", path, "--input", "a.wav")
    assert done.code == 2 and "for a model with --task detect, found a sound" in done.err

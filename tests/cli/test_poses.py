"""`edgekit run` of models that find poses or the classes of pixels, and the same on the board."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.application import InputError as DeviceInputError
from edgekit.device.runtime.application import open as open_on_board
from edgekit.host.compiler.toolchain.zig import kernels_folder
from tests.cli.test_detect import served
from tests.support.detectors import best_boxes, built, detector, scattered
from tests.support.onnx_models import node

_SIZE = (64, 96)
_PICTURE = (200, 100)  # width, height: letterboxed to 96 x 48, 8 pixels from the top


@pytest.fixture
def street(home: Path) -> Path:
    Image.new("RGB", _PICTURE, "gray").save(home / "street.png")
    return home / "street.png"


def _poses(path: Path, classes: int, points: int, **more):
    """A model of poses, and those that it finds in the picture: score, class, corners, points."""
    count = 8 * 12 + 4 * 6 + 2 * 3
    rng = np.random.default_rng(classes)
    boxes, scores = scattered(count, _SIZE, 1), (rng.random((count, classes)) ** 6)
    scores = scores.astype(np.float32)
    each = np.concatenate([boxes[:, None, :2]] * points, 1) + rng.normal(0, 5, (count, points, 2))
    seen = rng.random((count, points, 1))
    found = np.concatenate([each, seen], 2).reshape(count, -1)
    output = np.concatenate([boxes, scores, found], 1).T[None].astype(np.float32)
    model = detector(path, {"output0": output}, _SIZE, **more)
    expected = []
    for label, score, corners in best_boxes(boxes, scores, 0.25, 0.7):
        (at,) = np.flatnonzero(scores[:, label] == np.float32(score))
        flat = [*zip(each[at, :, 0], each[at, :, 1], seen[at, :, 0], strict=True)]
        expected.append((label, score, corners, flat))
    return model, expected


def _same(box, points, label, score, corners, expected) -> None:
    """Compares what is in pixels of the picture with what is in those of the input."""

    def placed(x, y):
        return min(max(x / 0.48, 0), 200), min(max((y - 8) / 0.48, 0), 100)

    assert box["number"] == label and box["score"] == pytest.approx(score, abs=1e-5)
    edges = [box[side] for side in ("left", "top", "right", "bottom")]
    assert edges == pytest.approx([*placed(*corners[:2]), *placed(*corners[2:])], abs=0.05)
    assert len(points) == len(expected)
    for (x, y, sure), (wanted_x, wanted_y, wanted) in zip(points, expected, strict=True):
        assert (x, y, sure) == pytest.approx((*placed(wanted_x, wanted_y), wanted), abs=0.05)


def test_poses_are_shown_drawn_and_written(edgekit, home, street):
    names, points = {i: f"kind {i}" for i in range(3)}, 17
    path, expected = _poses(home, 3, points, task="pose", names=names, kpt_shape=[points, 3])
    assert len(expected) > 3
    done = edgekit("run", path, "--input", street, "--json")
    assert "finds poses, by the file's metadata" in done.err
    (run,) = done.document["inputs"]
    assert len(run["boxes"]) == len(expected)
    for box, pose in zip(run["boxes"], expected, strict=True):
        assert box["label"] == names[pose[0]]
        _same(box, [list(p.values()) for p in box["points"]], *pose)
    assert len(Image.open(home / "street.out.png").getcolors(1 << 20)) > 3
    shown = edgekit("run", "--input", street).out
    seen = sum(sure >= 0.5 for *_, sure in expected[0][3])
    assert f"{names[expected[0][0]]}, {seen} of {points} points\n" in shown
    assert edgekit("run", "--input", street, "--output", "p.json").code == 0
    assert len(json.loads((home / "p.json").read_text())[0]["keypoints"]) == 3 * points
    with open_on_board(root=home.parent / "home/boards/local") as model:
        found = model.pose(np.asarray(Image.open(street)))
        assert len(found) == len(expected)
        for pose, wanted in zip(found, expected, strict=True):
            _same(pose.box._asdict(), pose.points, *wanted)
        with pytest.raises(DeviceInputError, match="compiled with --task segment, found pose"):
            model.segment(b"", 1, 1)


def test_poses_of_persons_are_recognized_and_of_others_asked_for(edgekit, home, street):
    path, _ = _poses(home, 1, 17)
    assert "pose, because 'output0' is like YOLOv8's poses" in edgekit("inspect", path).out
    chosen = np.array([[[1, 2, 30, 40, 0.9, 0, *range(4)], [5, 6, 7, 8, 0.1, 0, *range(4)]]])
    more = {"task": "pose", "names": {0: "dog"}, "kpt_shape": [2, 2]}
    path = detector(home, {"output0": chosen.astype(np.float32)}, _SIZE, **more)
    (run,) = edgekit("run", path, "--input", street, "--json").document["inputs"]
    (box,) = run["boxes"]
    assert box["label"] == "dog" and [p["score"] for p in box["points"]] == [1, 1]
    refused = edgekit("compile", path, "--task", "segment", "-o", "x.ekb")
    assert refused.code == 2
    assert "--task segment: expected one output with the classes of all pixels" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize("classes", [21, 1])
def test_classes_of_pixels_are_laid_over_the_picture(edgekit, home, street, classes):
    scores = np.random.default_rng(0).normal(0, 1, (1, classes, *_SIZE)).astype(np.float32)
    found = scores[0].argmax(0) if classes > 1 else (scores[0, 0] > 0).astype(int)
    nodes = [node("Sigmoid", ["x"], ["y"])]
    path = built(home, {"x": scores}, nodes, ["y"], _SIZE)
    task = "auto" if classes > 1 else "segment"
    done = edgekit("run", path, "--input", street, "--json", "--task", task)
    assert done.code == 0, done.err
    # The picture is stretched over the input: each pixel has the class below its center.
    at = (np.arange(100) + 0.5) * 64 / 100, (np.arange(200) + 0.5) * 96 / 200
    expected = found[np.ix_(at[0].astype(int), at[1].astype(int))]
    (run,) = done.document["inputs"]
    counts = {s["number"]: round(s["share"] * 20000) for s in run["shares"]}
    assert counts == {n: int(c) for n, c in enumerate(np.bincount(expected.ravel())) if c}
    if task == "auto":
        assert {s["number"]: s["label"] for s in run["shares"]}[15] == "person"
        assert "labels of Pascal VOC because there are 21 classes" in done.err
    first = f"{100 * run['shares'][0]['share']:5.1f}%  {run['shares'][0]['label'] or 'class'}"
    assert first in edgekit("run", "--input", street).out
    tinted = np.asarray(Image.open(home / "street.out.png"))
    assert len({tuple(p) for p in tinted[expected == expected[0, 0]]}) == 1
    assert len(np.unique(tinted.reshape(-1, 3), axis=0)) == len(counts)
    with open_on_board(root=home.parent / "home/boards/local") as model:
        made = model.segment(np.asarray(Image.open(street)))
        assert (made.width, made.height) == _PICTURE
        assert made.classes == expected.astype(np.uint8).tobytes()


def _watched(home: Path, *arguments: str) -> list[str]:
    """What the camera template prints about pictures that a program writes."""
    board = home.parent / "home/boards/local"
    program = kernels_folder().parent / "templates/camera/main.py"
    environment = {
        **os.environ,
        "PYTHONPATH": str(board / "current/runtime.pyz"),
        "EDGEKIT_ROOT": str(board),
    }
    words = [sys.executable, str(program), "--command", "cat frames.rgb", *arguments]
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_camera_and_the_server_tell_of_poses(edgekit, home, street):
    about = {"task": "pose", "names": {0: "dog"}, "kpt_shape": [2, 2]}
    chosen = np.array(
        [[[10, 12, 40, 48, 0.9, 0, 20, 20, 30, 30], [5, 16, 7, 28, 0.3, 0, *[1] * 4]]]
    )
    path = detector(home, {"y": chosen.astype(np.float32)}, _SIZE, **about)
    assert edgekit("deploy", path).code == 0
    (home / "frames.rgb").write_bytes(bytes(3 * 200 * 100) * 2)
    (line,) = _watched(home, "--size", "200x100")  # the second picture shows the same
    assert line == "picture 0: dog, 0.90, at 21 8 83 83"
    board = home.parent / "home/boards/local"
    bodies = {"/pose": street.read_bytes(), "/segment": street.read_bytes()}
    answers = served(home, board, bodies)
    found = json.loads(answers["/pose"][1])["poses"]
    assert [each["box"]["label"] for each in found] == ["dog", "dog"]
    assert [each["box"]["score"] for each in found] == pytest.approx([0.9, 0.3])
    assert found[0]["points"][0] == pytest.approx({"x": 20 / 0.48, "y": 25, "score": 1})
    code, said = answers["/segment"]
    assert code == 400 and "compiled with --task segment, found pose" in said


def test_the_camera_and_the_server_tell_of_segments(edgekit, home, street):
    scores = np.zeros((1, 21, *_SIZE), np.float32)
    scores[:, 15, :, :24] = 1  # a quarter of the columns
    scores[:, 8, 0, 24] = 1  # too little to tell of
    path = built(home, {"y": scores}, [], ["y"], _SIZE)
    assert edgekit("deploy", path, "--task", "segment").code == 0
    (home / "frames.rgb").write_bytes(bytes(3 * 200 * 100))
    assert _watched(home, "--size", "200x100") == ["picture 0: background, 75%; person, 25%"]
    answers = served(home, home.parent / "home/boards/local", {"/segment": street.read_bytes()})
    shares = {s["label"]: s["share"] for s in json.loads(answers["/segment"][1])["shares"]}
    assert shares["person"] == pytest.approx(0.25) and 0 < shares["cat"] < 0.02

"""`edgekit run` of a detector: boxes in pixels of the picture, drawn and written."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.agent.fitting import Box, Pose
from edgekit.device.runtime.application import InputError as DeviceInputError
from edgekit.device.runtime.application import open as open_on_board
from edgekit.host.cli.boxes import coco_json
from edgekit.host.compiler.tasks.coco import COCO, COCO_CATEGORIES
from edgekit.host.compiler.toolchain.zig import kernels_folder
from tests.support.applications import FORM, UnixConnection, form_with
from tests.support.detectors import best_boxes, detector, scattered
from tests.support.onnx_models import model as model_of
from tests.support.onnx_models import node, save, value
from tests.support.patience import until
from tests.support.places import few_or_all

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


@pytest.mark.slow
def test_boxes_are_shown_drawn_and_written(edgekit, scene, home):
    path, expected = scene
    done = edgekit("run", path, "--input", "street.png", "--json")
    assert done.code == 0 and "finds boxes, by the file's metadata" in done.err
    (run,) = done.document["inputs"]
    assert len(run["boxes"]) == len(expected) > 3
    for box, (label, score, corners) in zip(run["boxes"], expected, strict=True):
        assert (box["number"], box["label"]) == (label, _NAMES[label])
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


@pytest.mark.slow
def test_boxes_of_outputs_that_show_them_are_written(edgekit, home):
    """Without metadata, as they are shown; arrays of numbers are those of the outputs."""
    rows = np.array([[[1, 2, 30, 40, 0.9, 1], [5, 6, 7, 8, 0.4, 0]]], np.float32)
    path = detector(home, {"rows": rows}, (48, 96))
    Image.new("RGB", (96, 48)).save(home / "street.png")
    for file in ("boxes.json", "rows.npz"):
        assert edgekit("run", path, "--input", "street.png", "--output", file).code == 0
    assert [b["score"] for b in json.loads((home / "boxes.json").read_text())] == [0.9, 0.4]
    with np.load(home / "rows.npz") as made:
        assert [*made] == ["rows"]


@pytest.mark.parametrize("labels", [COCO, COCO_CATEGORIES, ("", *COCO_CATEGORIES)])
def test_categories_are_those_of_coco(labels):
    """Whatever the model counts."""
    boxes = [Box(name, 0.5, 0, 0, 9, 9, labels.index(name)) for name in ("person", "toothbrush")]
    written = coco_json([(Path("7.jpg"), [Pose(box, []) for box in boxes])], labels, {})
    assert [each["category_id"] for each in json.loads(written)] == [1, 90]
    assert [each["image_id"] for each in json.loads(written)] == [7, 7]


@pytest.mark.slow
def test_a_head_that_shapes_do_not_show_is_asked_for(edgekit, home):
    """YOLOX has the picture in the corner of its input, which is not scaled to 0..1."""
    count = 8 * 12 + 4 * 6 + 2 * 3
    boxes, scores = scattered(count, _SIZE, 1), np.random.default_rng(1).random((count, 3)) ** 6
    output = np.concatenate([boxes, np.ones((count, 1)), scores], 1)[None].astype(np.float32)
    path = detector(home, {"output": output}, _SIZE)
    Image.new("RGB", _PICTURE, "gray").save(home / "street.png")
    said = "finds no boxes: the outputs may be of yolox, yolox-decoded or yolov6"
    assert said in edgekit("run", path, "--input", "street.png").err
    assert f"task           {said}" in edgekit("inspect", path).out
    done = edgekit("run", path, "--input", "street.png", "--json", "--head", "yolox-decoded")
    (run,) = done.document["inputs"]
    every = best_boxes(boxes, scores.astype(np.float32), 0.3, 0.45, across=True)
    expected = [each for each in every if each[2][1] < 48]  # others are below the picture
    assert len(run["boxes"]) == len(expected) > 3
    for box, (label, _, corners) in zip(run["boxes"], expected, strict=True):
        edges = [box[side] for side in ("left", "top", "right", "bottom")]
        limits = (*_PICTURE, *_PICTURE)
        cut = [min(max(v / 0.48, 0), most) for v, most in zip(corners, limits, strict=True)]
        assert box["number"] == label and edges == pytest.approx(cut, abs=0.05)


def test_inspect_says_what_run_would_do(edgekit, scene):
    path, _ = scene
    found = edgekit("inspect", path)
    assert "task           detect, by the file's metadata: letterbox" in found.out
    path.with_suffix(".toml").write_text("[picture]\nmean = [1, 2, 3]\nscale = 58.395\n")
    stated = (
        "metadata, pictures by m.toml: letterbox filled with 114, rgb, mean 1,2,3, scale 58.395"
    )
    assert stated in edgekit("inspect", path).out
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", few_or_all(["L", "RGBA", "CMYK", "I;16", "P", "1", "LA"], ["RGBA", "I;16"])
)
def test_pictures_of_all_modes_are_taken(edgekit, scene, home, mode):
    Image.new("RGB", _PICTURE, "gray").convert("L").convert(mode).save(home / "p.tiff")
    done = edgekit("run", scene[0], "--input", "p.tiff", "--json")
    assert done.code == 0 and done.document["inputs"][0]["boxes"]


@pytest.mark.slow
def test_programs_on_the_board_give_frames(edgekit, scene, home):
    path, expected = scene
    assert edgekit("deploy", path).code == 0
    frame = np.asarray(Image.open(home / "street.png"))
    with open_on_board(root=home.parent / "home/boards/local") as model:
        assert model.task is not None and model.task.fit == "letterbox"
        for given in ((frame,), (frame.tobytes(), 200, 100), (bytearray(frame), 200, 100)):
            found = model.detect(*given)
            assert [box.label for box in found] == [_NAMES[label] for label, *_ in expected]
            assert found[0][2:6] == pytest.approx(expected[0][2], abs=0.05)
        flipped = model.detect(frame[:, ::-1])
        assert len(flipped) == len(expected)
        for wrong, said in (
            ((b"",), r"expected a picture of known size, found \[0\]; give an array"),
            ((frame[..., 0],), r"expected a picture of known size, found \[100, 200\]; give"),
            ((frame[:0],), "expected at least 1 x 1 pixels, found 200 x 0; give an array"),
            ((frame[..., :2],), "expected 200 x 100 pixels of 3 bytes"),
            ((frame.astype(np.float32),), "found elements of 4"),
            (("text",), "expected a picture as bytes, found str; give an array"),
        ):
            with pytest.raises(DeviceInputError, match=said):
                model.detect(*wrong)
        with pytest.raises(DeviceInputError, match="compiled with --task classify, found detect"):
            model.classify(frame)


@pytest.mark.slow
def test_the_server_takes_pictures(edgekit, scene, home):
    path, expected = scene
    assert edgekit("deploy", path).code == 0
    board = home.parent / "home/boards/local"
    bodies = {"/detect": (home / "street.png").read_bytes(), "/classify": b"no picture"}
    answers = served(home, board, bodies)
    found = json.loads(answers["/detect"][1])
    assert (found["width"], found["height"]) == _PICTURE
    assert [b["label"] for b in found["boxes"]] == [_NAMES[label] for label, *_ in expected]
    assert found["boxes"][0]["left"] == pytest.approx(expected[0][2][0], abs=0.05)
    form = {"/v1/vision/detection": form_with(api_key=b"", image=bodies["/detect"])}
    ((_, answer),) = served(home, board, form, kind=FORM).values()  # as Frigate asks
    best = json.loads(answer)["predictions"][0]
    assert (best["label"], best["confidence"]) == (
        _NAMES[expected[0][0]],
        found["boxes"][0]["score"],
    )
    assert [best[edge] for edge in ("x_min", "y_min", "x_max", "y_max")] == [
        found["boxes"][0][edge] for edge in ("left", "top", "right", "bottom")
    ]
    code, said = answers["/classify"]
    assert code == 400 and said.startswith("expected a picture that Pillow reads, found")

    (home / "PIL.py").write_text("raise ImportError")
    for code, said in served(home, board, bodies).values():
        assert code == 501 and said.startswith("expected Pillow on the board")
        assert said.count("\n") == 1


def served(
    home: Path, board: Path, bodies: dict[str, bytes], *arguments: str, kind: str = ""
) -> dict[str, tuple[int, str]]:
    """The answers of the template's server to bodies of this content type; modules in `home` come
    first."""
    packages = os.pathsep.join(map(str, (home, board / "current/runtime.pyz")))
    program = kernels_folder().parent / "templates/serve/main.py"
    environment = {**os.environ, "PYTHONPATH": packages, "EDGEKIT_ROOT": str(board)}
    answers = {}
    words = [sys.executable, str(program), *arguments]
    with subprocess.Popen(words, cwd=home, env=environment) as server:
        try:
            for where, body in bodies.items():
                connection = UnixConnection(home / "serve.sock")
                until(lambda c=connection, w=where, b=body: _is_sent(c, w, b, kind))
                answer = connection.getresponse()
                answers[where] = (answer.status, answer.read().decode())
                connection.close()
        finally:
            server.terminate()
    return answers


def _is_sent(connection, where: str, body: bytes, kind: str) -> bool:
    """False while the server does not listen yet."""
    try:
        connection.request("POST", where, body, {"Content-Type": kind})
    except (ConnectionRefusedError, FileNotFoundError):  # of the server before, or none yet
        connection.close()
        return False
    return True


@pytest.mark.slow
def test_programs_get_the_best_classes(edgekit, home):
    """The classes of this model are its pixels, which are no shares."""
    size, labels = 3 * 8 * 6, {i: f"p{i}" for i in range(3 * 8 * 6)}
    nodes = [node("Reshape", ["images", "shape"], ["y"])]
    constants = {"shape": np.array([1, size])}
    made = model_of(nodes, [value("images", [1, 3, 8, 6])], ["y"], constants, opset=13)
    for key, text in (("task", "classify"), ("names", str(labels))):
        entry = made.metadata_props.add()
        entry.key, entry.value = key, text
    assert edgekit("deploy", save(made, home)).code == 0
    frame = np.random.default_rng(0).integers(0, 256, (8, 6, 3)).astype(np.uint8)
    with open_on_board(root=home.parent / "home/boards/local") as model:
        found = model.classify(frame, top=size)
    scores = np.zeros(size)
    for each in found:
        assert each.label == labels[each.number]
        scores[each.number] = each.score
    shares = np.exp(frame.transpose(2, 0, 1) / 255)
    np.testing.assert_allclose(scores.reshape(3, 8, 6), shares / shares.sum(), atol=1e-6)
    Image.fromarray(frame).save(home / "p.png")
    shown = edgekit("run", "--input", "p.png").out
    assert f"  {found[0].score:8.4f}  {found[0].label}\n" in shown


def test_pictures_of_one_stem_are_drawn_apart(edgekit, scene, home):
    Image.open(home / "street.png").save(home / "street.bmp")
    assert edgekit("run", scene[0], "--input", home).code == 0
    assert (home / "street.png.out.png").is_file() and (home / "street.bmp.out.png").is_file()


def test_labels_of_another_length_are_refused(edgekit, scene, home):
    (home / "l.txt").write_text("cat\ndog")
    done = edgekit("run", scene[0], "--input", "street.png", "--labels", "l.txt")
    assert done.code == 2
    assert done.err.startswith("edgekit: --labels: expected 3 labels, as the model has, found 2")

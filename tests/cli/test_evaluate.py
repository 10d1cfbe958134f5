"""`edgekit run --evaluate`: figures equal to pycocotools', and shares of right classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.host.compiler.tasks.precision import FoundBox, precision_of, true_boxes
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value


def _scene(seed: int):
    """Annotations and results of six pictures: with crowds, near misses and a wrong category."""
    rng = np.random.default_rng(seed)
    right, found = [], []
    for image in range(1, 7):
        for _ in range(int(rng.integers(1, 7))):
            box = [round(float(v), 3) for v in rng.uniform((0, 0, 20, 20), (200, 200, 120, 120))]
            category, crowd = int(rng.integers(1, 4)), int(rng.random() < 0.15)
            right.append(
                {"image_id": image, "category_id": category, "bbox": box, "iscrowd": crowd}
            )
            for _ in range(int(rng.integers(0, 4))):
                jitter = rng.normal(0, 8, 4)
                kind = category if rng.random() < 0.9 else 4
                near = [round(float(a + b), 3) for a, b in zip(box, jitter, strict=True)]
                found.append((image, FoundBox(kind, round(float(rng.random()), 2), _corners(near))))
    return right, found


def _corners(box):
    x, y, width, height = box
    return x, y, x + width, y + height


@pytest.mark.parametrize(
    ("seed", "expected"),
    [  # stats 0, 1, 2 and 8 of pycocotools 2.0's COCOeval for bounding boxes
        (0, (0.22028052805280526, 0.5445544554455446, 0.09295929592959296, 0.33095238095238094)),
        (1, (0.15448307926030697, 0.31358373932631356, 0.15539053905390537, 0.24749999999999997)),
        (2, (0.12403740374037403, 0.3794279427942794, 0.11551155115511551, 0.19246031746031747)),
    ],
)
def test_precision_is_that_of_pycocotools(seed, expected):
    right, found = _scene(seed)
    boxes = true_boxes(right)
    made = precision_of(
        (boxes.get(image, []), [box for i, box in found if i == image]) for image in range(1, 7)
    )
    figures = (made.every, made.at_50, made.at_75, made.recall)
    assert figures == pytest.approx(expected, abs=1e-9)


def test_nothing_that_is_right_is_no_figure():
    assert np.isnan(precision_of([([], [FoundBox(1, 0.5, (0, 0, 1, 1))])]).every)


@pytest.fixture
def boxes(home: Path) -> Path:
    """A detector of two boxes, the second of a class that the annotations call by another name,
    and three pictures with annotations."""
    rows = np.array([[[8, 16, 40, 48, 0.9, 0], [48, 0, 96, 32, 0.6, 1]]], np.float32)
    path = detector(home, {"y": rows}, (64, 96), task="detect", names={0: "cat", 1: "red hat"})
    (home / "photos").mkdir()
    for i in range(3):
        Image.new("RGB", (96, 64), "gray").save(home / f"photos/p{i}.png")
    entries = [(0, 7, [8, 16, 32, 32]), (1, 7, [0, 0, 9, 9]), (2, 9, [48, 0, 48, 30])]
    about = {
        "images": [{"id": i, "file_name": f"p{i}.png"} for i in range(3)],
        "annotations": [
            {"image_id": i, "category_id": c, "bbox": b, "iscrowd": 0} for i, c, b in entries
        ],
        "categories": [{"id": 7, "name": "cat"}, {"id": 9, "name": "Red_Hat"}],
    }
    (home / "photos/instances.json").write_text(json.dumps(about))
    return path


@pytest.mark.slow
def test_boxes_are_compared_with_annotations(edgekit, boxes, home):
    truth = "photos/instances.json"
    done = edgekit("run", boxes, "--input", "photos", "--evaluate", truth, "--json")
    assert done.code == 0, done.err
    found = done.document["evaluation"]
    # Of "cat", one of two is found, at rank one of equal scores; of "red hat" one of one.
    assert found["pictures"] == 3 and found["recall"] == pytest.approx((0.5 + 0.9) / 2)
    assert found["at_50"] == pytest.approx((51 / 101 + 1 / 3) / 2, abs=1e-6)
    assert not list(home.glob("*.out.png"))
    shown = edgekit("run", "--evaluate", truth).out  # what is deployed, pictures next to the file
    assert f"mAP      {found['every']:.4f} of 3 pictures" in shown and "\nboxes " not in shown


def _classifier(folder: Path) -> Path:
    """Its seven scores are how red, green and blue a picture is, and smaller constants."""
    nodes = [
        node("GlobalAveragePool", ["images"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("Concat", ["flat", "rest"], ["y"], axis=1),
    ]
    rest = np.array([[0.4, 0.3, -1, -2]], np.float32)
    made = model(nodes, [value("images", [1, 3, 8, 8])], ["y"], {"rest": rest})
    names = dict(enumerate(("red", "green", "blue", *"defg")))
    for key, text in {"task": "classify", "names": names}.items():
        entry = made.metadata_props.add()
        entry.key, entry.value = key, str(text)
    return save(made, folder)


@pytest.fixture
def colors(home: Path) -> Path:
    """Six pictures in folders of their color; of two blue ones, one is green."""
    for name in ("red", "green", "blue"):
        (home / "colors" / name).mkdir(parents=True)
        for i in range(2):
            wrong = name == "blue" and i == 1
            Image.new("RGB", (8, 8), "lime" if wrong else name).save(
                home / f"colors/{name}/{i}.png"
            )
    return _classifier(home)


@pytest.mark.slow
def test_classes_are_compared_with_folders_and_lines(edgekit, colors, home):
    done = edgekit("run", colors, "--evaluate", "colors")
    assert done.code == 0, done.err
    assert "top-1    83.33% of 6 pictures" in done.out and "top-5    100.00%" in done.out
    (home / "right.csv").write_text("file,label\ncolors/red/0.png,2\ncolors/green/1.png,Green\n")
    found = edgekit("run", "--evaluate", "right.csv", "--json").document["evaluation"]
    assert found == {"pictures": 2, "top1": 0.5, "top5": 1.0}
    (home / "val.txt").write_text("red/0.png 6\nblue/0.png 2\n")
    done = edgekit("run", "--input", "colors", "--evaluate", "val.txt", "--json")
    assert done.document["evaluation"] == {"pictures": 2, "top1": 0.5, "top5": 0.5}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colors/red/0.png,pink\n", "expected labels of the model, such as 'red', or numbers"),
        ("colors/red/0.png,7\n", "or numbers below 7, found '7'"),
        ("colors/none.png,red\n", "expected the file"),
        ("colors/red/0.png\n", "lines of file and label or text, or a folder of each class, found"),
        ("", "found none"),
    ],
)
def test_what_does_not_fit_is_one_line(edgekit, colors, home, text, said):
    (home / "right.csv").write_text(text)
    done = edgekit("run", colors, "--evaluate", "right.csv")
    assert done.code == 2 and said in done.err.splitlines()[-1]


def test_other_files_and_options_are_refused(edgekit, colors, home):
    (home / "x.json").write_text('{"images": []}')
    for arguments, said in (
        (("--evaluate", "x.json"), "instances.json, lines of file and label"),
        (("--evaluate", "none.json"), "found No such file or directory"),
        (("--evaluate", "colors/red"), "expected a folder of files for each class"),
        (("--evaluate", "colors", "--top", "3"), "expected it without --stream, --output and"),
    ):
        done = edgekit("run", colors, *arguments)
        assert done.code == 2 and said in done.err.splitlines()[-1]
    (home / "i.json").write_text(
        json.dumps(
            {
                "images": [{"id": 1, "file_name": "colors/red/0.png"}],
                "annotations": [],
                "categories": [{"id": 1, "name": "red"}],
            }
        )
    )
    done = edgekit("run", colors, "--evaluate", "i.json")
    assert done.code == 2 and "expected a model that can detect, for --evaluate" in done.err

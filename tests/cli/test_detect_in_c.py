"""C programs get boxes, poses and classes from pictures, as Python programs do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.application import open as open_on_board
from edgekit.device.runtime.errors import InputError
from tests.support.c_application import build_program
from tests.support.detectors import built, detector, instances, scattered
from tests.support.onnx_models import model as model_of
from tests.support.onnx_models import node, save, value
from tests.support.rotated import rotated

_SIZE = (64, 96)
_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ek_app.h"

int main(int count, char **argument) {
    char error[512];
    int width = atoi(argument[2]), height = atoi(argument[3]), most = atoi(argument[4]);
    static unsigned char pixels[1 << 20];
    static ek_box boxes[128];
    static ek_class classes[128];
    ek_app *app = ek_app_open(argument[1], NULL, 1, error, sizeof error);
    if (!app || count < 5)
        return puts(error), 1;
    (void)!fread(pixels, 1, sizeof pixels, stdin);
    const ek_frame frame = {pixels, width, height, 0};
    int found = ek_app_detect(app, &frame, boxes, most);
    for (int i = 0; i < found; i++)
        printf("%d %.6f %.3f %.3f %.3f %.3f %s\\n", boxes[i].number, boxes[i].score, boxes[i].left,
               boxes[i].top, boxes[i].right, boxes[i].bottom, boxes[i].label);
    if (found < 0)
        puts(ek_app_error(app));
    found = ek_app_classify(app, &frame, classes, most);
    for (int i = 0; i < found; i++)
        printf("%d %.6f %s\\n", classes[i].number, classes[i].score, classes[i].label);
    if (found < 0)
        puts(ek_app_error(app));
    static ek_pose poses[128];
    found = ek_app_pose(app, &frame, poses, most);
    if (strstr(ek_app_error(app), "not decoded"))
        puts(ek_app_error(app));
    for (int i = 0; i < found; i++) {
        printf("%d %.6f %.3f %s:", poses[i].box.number, poses[i].box.score, poses[i].box.left,
               poses[i].box.label);
        for (int k = 0; k < poses[i].points; k++)
            printf(" %.3f %.3f %.5f", poses[i].point[k].x, poses[i].point[k].y,
                   poses[i].point[k].score);
        puts("");
    }
    static unsigned char map[1 << 20];
    if (!ek_app_segment(app, &frame, map))
        for (int i = 0; i < width * height; i++)
            printf("%d%c", map[i], (i + 1) % width ? ' ' : '\\n');
    static ek_rotated rotated[128];
    found = ek_app_obb(app, &frame, rotated, most);
    for (int i = 0; i < found; i++) {
        printf("%.6f %.3f %s:", rotated[i].box.score, rotated[i].box.left, rotated[i].box.label);
        for (int k = 0; k < EK_APP_CORNERS; k++)
            printf(" %.3f %.3f", rotated[i].x[k], rotated[i].y[k]);
        puts("");
    }
    static unsigned char masks[1 << 22];
    found = ek_app_instances(app, &frame, boxes, masks, most);
    for (int i = 0; i < found; i++) {
        printf("%.6f %s:", boxes[i].score, boxes[i].label);
        for (int k = 0; k < width * height; k++)
            if (masks[i * width * height + k])
                printf(" %d", k);
        puts("");
    }
    ek_image made;
    int64_t bytes = ek_app_image(app, &frame, masks, 1 << 22, &made);
    if (bytes > 0)
        printf("%d x %d x %d:", (int)made.width, (int)made.height, made.channels);
    for (int64_t i = 0; i < bytes; i++)
        printf(" %d", masks[i]);
    ek_app_close(app);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "p.c").write_text(_PROGRAM)
    return build_program(folder, folder / "p.c")


def _lines(program: Path, board: Path, frame, most: int) -> list[str]:
    height, width = frame.shape[:2]
    words = [program, board, str(width), str(height), str(most)]
    done = subprocess.run(words, input=frame.tobytes(), capture_output=True, check=True)
    return done.stdout.decode().splitlines()


@pytest.mark.slow
def test_boxes_are_those_of_python(edgekit, home, program):
    """Boxes are constant; scores also depend on the picture, which lies in a corner of the input
    with its colors reversed."""
    count = 8 * 12 + 4 * 6 + 2 * 3
    boxes = scattered(count, _SIZE, 1)
    scores = np.random.default_rng(1).random((count, 3)).astype(np.float32) ** 6
    parts = {"box": boxes.T[None].copy(), "each": scores.T[None].copy()}
    parts |= {"ones": np.ones((1, 1, count), np.float32), "small": np.float32([0.5 / 255])}
    nodes = [
        node("ReduceMax", ["images"], ["light"], keepdims=0),
        node("Mul", ["light", "small"], ["less"]),
        node("Mul", ["each", "less"], ["scores"]),
        node("Concat", ["box", "ones", "scores"], ["y"], axis=1),
        node("Transpose", ["y"], ["rows"], perm=[0, 2, 1]),
    ]
    path = built(home, parts, nodes, ["rows"], _SIZE)
    assert edgekit("deploy", path, "--head", "yolox-decoded").code == 0
    board = home.parent / "home/boards/local"
    rng = np.random.default_rng(0)
    with open_on_board(root=board) as model:
        for width, height in ((200, 100), (30, 90)):
            frame = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
            found = model.detect(frame)
            expected = [
                f"{b.number} {b.score:.6f} {b.left:.3f} {b.top:.3f} {b.right:.3f} {b.bottom:.3f} "
                + b.label
                for b in found
            ]
            *lines, refused = _lines(program, board, frame, 100)
            assert lines == expected and len(lines) > 3
            assert refused == "expected a model compiled with --task classify, found another"
            assert _lines(program, board, frame, 3)[:-1] == expected[:3]
    empty = np.zeros((0, 5, 3), np.uint8)
    assert _lines(program, board, empty, 3)[0].startswith("expected a picture of at least 1 x 1")


@pytest.mark.slow
def test_classes_are_those_of_python(edgekit, home, program):
    """The classes of this model are its quantized pixels, after a crop of three quarters and
    a cubic filter, as `run` has them, too."""
    size = 3 * 8 * 6
    nodes = [
        node("DequantizeLinear", ["images", "scale", "zero"], ["x"]),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"scale": np.float32(0.5), "zero": np.uint8(3), "shape": np.array([1, size])}
    made = model_of(nodes, [value("images", [1, 8, 6, 3], "u8")], ["y"], constants, opset=13)
    # Characters of one to four bytes in UTF-8; JSON escapes the last one as a pair.
    names = {i: f'{i} "ß" 門 😀' for i in range(size)}
    for key, text in (("task", "classify"), ("names", str(names))):
        entry = made.metadata_props.add()
        entry.key, entry.value = key, text
    own = {"mean": [0] * 3, "std": [1 / 255] * 3, "crop_pct": 0.75, "interpolation": "bicubic"}
    (home / "config.json").write_text(json.dumps({"num_classes": size, "pretrained_cfg": own}))
    assert edgekit("deploy", save(made, home)).code == 0
    board = home.parent / "home/boards/local"
    frame = np.random.default_rng(0).integers(0, 256, (13, 21, 3)).astype(np.uint8)
    with open_on_board(root=board) as model:
        expected = [f"{c.number} {c.score:.6f} {c.label}" for c in model.classify(frame, top=100)]
    refused, *lines = _lines(program, board, frame, 100)
    assert lines == expected and "--task detect" in refused
    Image.fromarray(frame).save(home / "p.png")
    (run,) = edgekit("run", "--input", "p.png", "--json").document["inputs"]
    shown = [f"{c['index']} {c['score']:.6f} {c['label']}" for c in run["top"][0]]
    assert shown == expected[:5]


@pytest.mark.slow
def test_poses_are_those_of_python(edgekit, home, program):
    """Rows that the model selects, which lie in a letterbox of the input. White pictures raise the
    scores above 1, and black ones move left edges behind the right ones, which both refuse."""
    rng = np.random.default_rng(2)
    corners = np.sort(rng.uniform(0, 64, (40, 2, 2)), axis=1).reshape(40, 4)
    corners[:, 0] += 256
    score, label = rng.random((40, 1)), rng.integers(0, 2, (40, 1))
    points = rng.uniform(-9, 90, (40, 5 * 3))
    rows = np.concatenate([corners, score, label, points], 1)[None].astype(np.float32)
    about = {"task": "pose", "names": {0: "cat", 1: "dog"}, "kpt_shape": [5, 3]}
    nodes = [
        node("ReduceMin", ["images"], ["darkest"], keepdims=0),
        node("Floor", ["darkest"], ["white"]),
        node("Mul", ["white", "more"], ["raised"]),
        node("ReduceMax", ["images"], ["lightest"], keepdims=0),
        node("Ceil", ["lightest"], ["lit"]),
        node("Mul", ["lit", "back"], ["moved"]),
        node("Add", ["raised", "moved"], ["both"]),
        node("Add", ["rows", "both"], ["y"]),
    ]
    parts = {"rows": rows, "more": np.float32([0, 0, 0, 0, 3, *[0] * 16]),
             "back": np.float32([-256, *[0] * 20])}  # fmt: skip
    path = built(home, parts, nodes, ["y"], _SIZE, **about)
    assert edgekit("deploy", path).code == 0
    board = home.parent / "home/boards/local"
    with open_on_board(root=board) as model:
        for width, height in ((200, 100), (30, 90)):
            frame = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
            expected = [
                f"{box.number} {box.score:.6f} {box.left:.3f} {box.label}:"
                + "".join(f" {x:.3f} {y:.3f} {sure:.5f}" for x, y, sure in points)
                for box, points in model.pose(frame)
            ]
            assert len(expected) > 9
            for most in (100, 3):
                lines = _lines(program, board, frame, most)
                assert lines[0].endswith("--task detect, found another")
                assert lines[2:] == expected[:most]
        for light, said in ((255, "scores from 0 to 1, found 3"), (0, "a width and height above")):
            plain = np.full((*_SIZE, 3), light, np.uint8)
            with pytest.raises(InputError, match=said) as refused:
                model.pose(plain)
            assert _lines(program, board, plain, 9)[2:] == [str(refused.value)]


@pytest.mark.slow
def test_classes_of_pixels_are_those_of_python(edgekit, home, program):
    scores = np.random.default_rng(3).normal(0, 1, (1, 21, *_SIZE)).astype(np.float32)
    path = detector(home, {"y": scores}, _SIZE)
    assert edgekit("deploy", path, "--task", "segment").code == 0
    board = home.parent / "home/boards/local"
    with open_on_board(root=board) as model:
        for width, height in ((70, 41), (200, 100)):
            frame = np.zeros((height, width, 3), np.uint8)
            lines = _lines(program, board, frame, 3)[2:]
            found = np.array([line.split() for line in lines], np.uint8)
            assert found.shape == (height, width)
            assert found.tobytes() == model.segment(frame).classes


@pytest.mark.slow
def test_made_pictures_are_those_of_python(edgekit, home, program):
    """A depth of a quarter, in colors, and a picture of twice as many pixels."""
    board = home.parent / "home/boards/local"
    frame = np.random.default_rng(2).integers(0, 256, (50, 75, 3)).astype(np.uint8)
    sizes = np.array([1, 1, 2, 2], np.float32)
    nodes = {
        "depth": [node("ReduceMean", ["x"], ["y"], axes=[1])],
        "larger": [node("Resize", ["x", "", "sizes"], ["y"], mode="nearest")],
    }
    for name, own in nodes.items():
        made = model_of(own, [value("x", [1, 3, 32, 24])], ["y"], {"sizes": sizes}, opset=13)
        path = save(made, home, f"{name}.onnx")
        assert edgekit("deploy", path, "--task", "image").code == 0
        with open_on_board(root=board) as model:
            found = model.image(frame)
        (line,) = [line for line in _lines(program, board, frame, 1) if " x " in line]
        size, _, values = line.partition(":")
        assert size == f"{found.width} x {found.height} x {found.channels}"
        assert [*map(int, values.split())] == list(found.pixels)


@pytest.mark.slow
def test_corners_and_masks_are_those_of_python(edgekit, home, program):
    names = {0: "cup", 1: "plate", 2: "fork"}
    board = home.parent / "home/boards/local"
    frame = np.zeros((100, 200, 3), np.uint8)
    path, _ = rotated(home, _SIZE, task="obb", names=names)
    assert edgekit("deploy", path).code == 0
    with open_on_board(root=board) as model:
        expected = [
            f"{box.score:.6f} {box.left:.3f} {box.label}:"
            + "".join(f" {x:.3f} {y:.3f}" for x, y in corners)
            for box, corners in model.obb(frame)
        ]
    lines = [line for line in _lines(program, board, frame, 4) if ":" in line]
    assert lines == expected[:4] and len(expected) > 4
    path, *_ = instances(home, _SIZE, names=names)
    assert edgekit("deploy", path, "--task", "segment").code == 0
    with open_on_board(root=board) as model:
        expected = [
            f"{each.box.score:.6f} {each.box.label}:"
            + "".join(f" {k}" for k in np.flatnonzero(each.mask(200, 100)))
            for each in model.instances(frame)
        ]
    lines = [line for line in _lines(program, board, frame, 100) if ":" in line]
    assert lines == expected and sum(len(line) for line in lines) > 1000

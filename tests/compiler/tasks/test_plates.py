"""Readers of license plates: their characters, whether or not equal ones are side by side."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.device.runtime.agent.lines import Characters
from edgekit.host.compiler.ir.evaluate import evaluate
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value

_CONFIG = """max_plate_slots: 6
alphabet: '01AB_'
pad_char: '_'
img_height: 32
img_width: 64
keep_aspect_ratio: {}
image_color_mode: rgb
interpolation: linear
padding_color: [9, 9, 9]
"""


def _read(made, shape):
    assert made.task is not None and made.task.kind == "ocr"
    x = np.zeros(shape, made.graph.tensors[made.task.input].dtype.numpy)
    values = evaluate(made.graph, {made.task.input: x}).outputs[made.task.output]
    listed = json.loads(made.files[made.task.characters])["characters"]
    return Characters(listed).line(values.reshape(-1).tolist())


def _slots(folder, text, flat):
    """Shares of the characters of fast-plate-ocr's alphabet in each slot."""
    shares = np.full((1, len(text), 5), 0.05, np.float32)
    shares[0, range(len(text)), ["01AB_".index(c) for c in text]] = 0.8
    nodes = [
        node("Cast", ["input"], ["floats"], to=1),
        node("ReduceMean", ["floats"], ["mean"], keepdims=0),
        node("Mul", ["mean", "zero"], ["none"]),
        node("Add", ["shares", "none"], ["output" if flat else "plate"]),
    ]
    shares = shares.reshape(1, -1) if flat else shares
    constants = {"shares": shares, "zero": np.zeros(1, np.float32)}
    given = [value("input", ["n", 32, 64, 3], "u8")]
    name = "output" if flat else "plate"
    return save(model(nodes, given, [name], constants, opset=13), folder, "plates.onnx")


@pytest.mark.parametrize("flat", [False, True])
def test_each_slot_has_a_character(tmp_path, flat):
    path = _slots(tmp_path, "A110__", flat)
    missing = prepared(path)
    assert missing.task is None
    assert flat or "plates_plate_config.yaml, is next to plates.onnx" in missing.source
    (tmp_path / "plates_plate_config.yaml").write_text(_CONFIG.format("false"))
    made = prepared(path)
    line = _read(made, (1, 32, 64, 3))
    assert line.text == "A110" and line.score == pytest.approx(0.8)
    assert made.task is not None and (made.task.fit, made.task.scale) == ("stretch", ())
    (tmp_path / "plates_plate_config.yaml").write_text(_CONFIG.format("true"))
    kept = prepared(path).task
    assert kept is not None and (kept.fit, kept.fill) == ("letterbox", 9)


def test_lprnet_repeats_characters_that_are_one(tmp_path):
    scores = np.zeros((1, 68, 18), np.float32)
    places = [0, 0, 67, 31, 32, 32, 67, 32, *[67] * 10]  # the first province, 0 and 1 twice
    scores[0, places, range(18)] = 9
    path = detector(tmp_path, {"y": scores}, (24, 94))
    made = prepared(path)
    assert _read(made, (1, 3, 24, 94)).text == "\u4eac011"
    assert made.task is not None and made.task.channels == "bgr" and "China" in made.source
    path = detector(tmp_path, {"y": scores[:, [31, 32, 0, 67]]}, (24, 94))
    assert "has its 4 characters, one in each line, with - for none" in prepared(path).source
    (tmp_path / "m.txt").write_text("X\nI\nO\n-\n")
    assert _read(prepared(path), (1, 3, 24, 94)).text == "OXII"


def test_a_word_of_parseq_ends(tmp_path):
    """The first of the characters is the end; what slots behind it have does not count."""
    scores = np.zeros((1, 26, 95), np.float32)
    scores[0, range(26), [11, 11, 1, 0, 5, *[0] * 20, 7]] = 9
    made = prepared(detector(tmp_path, {"logits": scores}, (32, 128)))
    assert _read(made, (1, 3, 32, 128)).text == "aa0"
    assert made.task is not None and (made.task.fit, made.task.filter) == ("stretch", "bicubic")
    scores = np.zeros((1, 32, 127), np.float32)
    scores[0, range(32), [10, 10, 125, 126, 4, *[126] * 27]] = 9  # the last of docTR's
    path = detector(tmp_path, {"logits": scores}, (32, 128))
    made = prepared(path.rename(tmp_path / "vitstr_small-3ff9c500.onnx"))
    assert _read(made, (1, 3, 32, 128)).text == "aaÇ"
    assert made.task is not None and made.task.fit == "line"


@pytest.mark.parametrize(
    ("name", "shape", "numbers", "expected"),
    [
        ("crnn", (1, 32, 100, 37), [11, 11, 0, 11, 2], "aa1"),
        ("m", (1, 31, 200, 37), [36, 10, 10, 36, 10, 1], "aa1"),  # of keras-ocr
        ("crnn", (1, 32, 128, 37), [], ""),  # other lists are as long
        ("english_g2", (1, 64, 160, 97), [1, 0, 44, 44, 96], "0€z"),  # of EasyOCR
        ("crnn_vgg16_bn", (3, 32, 128, 127), [126, 10, 10, 126, 10, 125], "aaÇ"),  # of docTR
        ("viptr_tiny-499b8015", (3, 32, 128, 127), [10, 126, 126, 126], "a"),
        ("m", (1, 224, 224, 96), [0, 12, 12, 2, 1, 7, *[0] * 21], "aa0"),  # of ViTSTR
        ("m", (1, 224, 224, 95), [0, 12, 12, 2, 1, 7, *[0] * 21], ""),
        ("master", (3, 32, 128, 127), [], ""),
    ],
)
def test_characters_of_some_models_are_known(tmp_path, name, shape, numbers, expected):
    channels, height, width, count = shape
    scores = np.zeros((1, max(len(numbers), 4), count), np.float32)
    if numbers:
        scores[0, range(len(numbers)), numbers] = 9
    nodes = [node("ReduceMean", ["x"], ["mean"], keepdims=0), node("Mul", ["mean", "z"], ["none"]),
             node("Add", ["c", "none"], ["y"])]  # fmt: skip
    constants = {"c": scores, "z": np.zeros(1, np.float32)}
    given = [value("x", [1, channels, height, width])]
    path = save(model(nodes, given, ["y"], constants, opset=13), tmp_path, f"{name}.onnx")
    made = prepared(path)
    if not expected:
        known = made.task is None and "characters along a line" in made.source
        assert known or (width == height and "not known ones" in made.source)
        return
    assert _read(made, (1, channels, height, width)).text == expected
    assert f"e there are {count}" in made.source


def test_a_gray_word_of_crnn_is_no_sound(tmp_path):
    nodes = [node("Reshape", ["x", "to"], ["rows"]), node("MatMul", ["rows", "w"], ["y"])]
    constants = {"to": np.array([100, 1, 32]), "w": np.zeros((32, 38), np.float32)}
    path = save(model(nodes, [value("x", [1, 1, 32, 100])], ["y"], constants, opset=13), tmp_path)
    assert "may be characters along a line of text" in prepared(path).source
    (tmp_path / "m.txt").write_text("\n".join("-0123456789abcdefghijklmnopqrstuvwxyz"))
    made = prepared(path).task
    assert made is not None and (made.kind, made.fit) == ("ocr", "stretch")

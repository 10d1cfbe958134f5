"""`edgekit run --recognizer`: what is in the boxes that a detector finds is read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.agent.fitting import Box
from edgekit.device.runtime.agent.lines import Line
from edgekit.device.runtime.agent.pages import Crop, cut, in_rows, pieces_of, read_line, read_page
from edgekit.device.runtime.agent.rotated import Rotated, upright
from edgekit.device.runtime.application import open as open_on_board
from tests.cli.test_detect import served
from tests.cli.test_ocr import line_reader, stripes
from tests.support.detectors import detector

_SIZE = (96, 160)
# Left, top and the text of each line: the second row begins with the box that is higher.
_LINES = ((90, 4, "cé"), (4, 6, "éc"), (60, 46, "c"), (6, 40, "écéc"))


def _page(home):
    """A picture with lines of 24 pixels, and a model that finds them and one without text."""
    page = np.full((*_SIZE, 3), 127, np.uint8)
    rows = []
    for left, top, text in _LINES:
        wide = 12 * len(text)
        page[top : top + 24, left : left + wide] = stripes([*text], 12)[:24]
        rows.append([left, top, left + wide, top + 24, 0.9, 0])
    rows.append([100, 60, 140, 84, 0.8, 0])
    Image.fromarray(page).save(home / "page.png")
    about = {"task": "detect", "names": {0: "text"}}
    output = np.array([rows], np.float32)
    path = detector(home, {"output0": output}, _SIZE, **about)
    return path.rename(home / "boxes.onnx"), page


def test_lines_are_read_in_their_order(edgekit, home):
    path, page = _page(home)
    reader = line_reader(home)
    words = ("run", path, "--input", "page.png", "--recognizer")
    done = edgekit(*words, reader, "--json")
    assert done.code == 0, done.err
    (run,) = done.document["inputs"]
    expected = [_LINES[i] for i in (1, 0, 3, 2)]
    assert [line["text"] for line in run["lines"]] == [text for *_, text in expected]
    places = [(line["left"], line["top"]) for line in run["lines"]]
    assert places == [pytest.approx(each[:2], abs=0.01) for each in expected]
    shown = edgekit(*words, "recognizer").out  # which is deployed now
    assert "text     page.png: 4\n" in shown and "  écéc\n" in shown
    root = home.parent / "home/boards/local"
    with open_on_board(root=root) as boxes, open_on_board("recognizer", root=root) as lines:
        found = boxes.read(page, lines)
    assert [line._asdict() for line in found] == run["lines"]
    body = {"/read": (home / "page.png").read_bytes()}
    answers = served(home, root, body, "--recognizer", "recognizer")
    assert json.loads(answers["/read"][1])["lines"] == run["lines"]
    assert "with --recognizer for /read" in served(home, root, body)["/read"][1]


@pytest.mark.slow
def test_a_release_holds_the_model_that_reads(edgekit, home):
    path, page = _page(home)
    (home / "r").mkdir()
    reader = line_reader(home / "r")
    done = edgekit("compile", path, "--recognizer", reader, "-o", "page.ekb")
    assert done.code == 0, done.err
    assert "reads a line of text, with the characters of" in done.err
    done = edgekit("deploy", "page.ekb")
    assert done.code == 0, done.err
    expected = [_LINES[i][2] for i in (1, 0, 3, 2)]
    done = edgekit("run", "--input", "page.png", "--json")
    assert done.code == 0, done.err
    (run,) = done.document["inputs"]
    assert [line["text"] for line in run["lines"]] == expected
    root = home.parent / "home/boards/local"
    with open_on_board(root=root) as model:
        assert [line._asdict() for line in model.read(page)] == run["lines"]
        assert len(model.detect(page)) == 5
        assert model.ocr(stripes(["c", "é"])).text == "cé"
    answers = served(home, root, {"/read": (home / "page.png").read_bytes()})
    assert json.loads(answers["/read"][1])["lines"] == run["lines"]


def test_a_release_needs_a_model_that_finds_and_one_that_reads(edgekit, home):
    path, _ = _page(home)
    (home / "r").mkdir()
    reader = line_reader(home / "r")
    done = edgekit("compile", reader, "--recognizer", reader, "-o", "x.ekb")
    assert done.code == 2
    assert "--recognizer: expected it with a model that finds boxes, found ocr" in done.err
    done = edgekit("compile", path, "--recognizer", path, "-o", "x.ekb")
    assert done.code == 2 and "--task ocr: expected" in done.err
    done = edgekit("compile", path, "--recognizer", "none.onnx", "-o", "x.ekb")
    assert done.code == 2 and "none.onnx: " in done.err.splitlines()[-1]
    done = edgekit("compile", path, "--recognizer", reader, "--samples", "s.npz", "-o", "x.ekb")
    assert done.code == 2 and "--recognizer: expected it without --samples" in done.err


@pytest.mark.slow
def test_models_that_do_not_fit_are_refused(edgekit, home):
    path, _ = _page(home)
    reader = line_reader(home)
    run = ("run", path, "--input", "page.png")
    done = edgekit("run", reader, "--input", "page.png", "--recognizer", reader)
    assert done.code == 2
    assert "--recognizer: expected it with a model that finds boxes, found ocr" in done.err
    assert edgekit("deploy", path, "--name", "boxes").code == 0
    done = edgekit(*run, "--recognizer", "boxes")
    assert done.code == 2 and "--recognizer boxes: expected a model that was compiled" in done.err
    done = edgekit(*run, "--recognizer", "nothing.onnx")
    assert done.code == 2 and "nothing.onnx: no such file" in done.err
    done = edgekit(*run, "--recognizer", reader, "--output", "x.json")
    assert done.code == 2 and "--recognizer: expected it without --stream, --output" in done.err


def _box(left, top, right, bottom):
    return upright(Box("", 1.0, left, top, right, bottom, 0))


def _turned(center, sides, angle):
    """A box of such sides around a center, turned clockwise."""
    along = np.array([np.cos(angle), np.sin(angle)]) * sides[0] / 2
    across = np.array([-np.sin(angle), np.cos(angle)]) * sides[1] / 2
    corners = [center + a * along + b * across for a, b in ((-1, 1), (-1, -1), (1, -1), (1, 1))]
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    return Rotated(Box("", 1.0, *low, *high, 0), tuple(map(tuple, corners)))


def test_rows_are_from_the_top_and_from_the_left():
    one, two = _box(50, 10, 90, 30), _box(0, 14, 40, 34)  # a row that is not level
    three, four = _box(0, 31, 40, 51), _box(50, 45, 90, 65)  # little in common
    assert in_rows([four, three, one, two]) == [two, one, three, four]


@pytest.mark.parametrize("angle", [0.25, -0.25])
def test_rows_of_a_page_that_is_not_level_rise_or_fall(angle):
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    centers = np.array([(100, 40), (320, 44), (100, 70), (320, 70), (250, 100)]) @ turn
    boxes = [_turned(center, (180, 20), angle) for center in centers]
    assert in_rows([boxes[i] for i in (3, 0, 4, 2, 1)]) == boxes


@pytest.mark.parametrize("angle", [0.1, -0.3, 1.4, 1.7])
def test_a_turned_box_is_made_level(angle):
    """Colors that change evenly from pixel to pixel are known at any place; a line that is more
    upright than level is turned counterclockwise."""
    y, x = np.indices((100, 120))
    page = Crop(np.stack([2 * x, 2 * y, x + y], 2).astype(np.uint8).tobytes(), 120, 100)
    found = cut(page, _turned((60, 50), (60, 12), angle))
    assert found[1:] == (60, 12)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    down, across = np.indices((12, 60)) + 0.5
    places = np.stack([across - 30, down - 6], 2) @ turn + (60 - 0.5, 50 - 0.5)
    expected = np.stack([2 * places[..., 0], 2 * places[..., 1], places.sum(2)], 2)
    pixels = np.frombuffer(found.pixels, np.uint8).reshape(12, 60, 3)
    np.testing.assert_allclose(pixels, expected, atol=1.1)


def test_a_box_is_cut_at_the_edges_and_turned_if_it_is_upright():
    page = np.arange(20 * 30 * 3).reshape(20, 30, 3).astype(np.uint8)
    found = cut(Crop(page.tobytes(), 30, 20), _box(-2.5, 3.2, 7.5, 11))
    assert found == Crop(page[3:11, :8].tobytes(), 8, 8)
    found = cut(Crop(page.tobytes(), 30, 20), _box(4, 2, 9, 18))
    assert found == Crop(np.rot90(page[2:18, 4:9]).tobytes(), 16, 5)


def _written(*columns):
    """A line of ten rows: black and white columns, or plain ones."""
    line = np.zeros((10, len(columns), 3), np.uint8)
    line[::2, [i for i, c in enumerate(columns) if c == "x"]] = 255
    return Crop(line.tobytes(), len(columns), 10)


def test_long_lines_are_cut_in_gaps_and_spaces_are_kept():
    pieces = pieces_of(_written(*"xxxxxxxxxxxxx.xx...xxxxxxxxxxxxx.xxxxxxxx"), 2.0)
    assert [piece.width for piece, _ in pieces] == [18, 15, 8]
    assert [is_apart for _, is_apart in pieces] == [False, True, False]
    assert [piece.width for piece, _ in pieces_of(_written(*"x" * 45), 2.0)] == [20, 20, 5]
    assert pieces_of(_written(*"x" * 20), 2.0) == [(_written(*"x" * 20), False)]
    assert [piece.width for piece, _ in pieces_of(_written(*"x" * 15, *"." * 20), 2.0)] == [18]
    texts = iter([Line("ab", 1.0), Line("c", 0.4), Line("", 0.0)])
    line = _written(*"xxxxxxxxxxxxx.xx...xxxxxxxxxxxxx.xxxxxxxx")
    assert read_line(line, 2.0, lambda _: next(texts)) == Line("ab c", pytest.approx(2.4 / 4))


def test_a_line_of_which_the_model_is_hardly_sure_is_left_out():
    page = Crop(bytes(3 * 20 * 10), 20, 10)
    lines = iter([Line("noise", 0.49), Line("text", 0.5)])
    found = read_page(page, [_box(0, 0, 9, 9), _box(10, 0, 19, 9)], lambda _: next(lines))
    assert [line.text for line in found] == ["text"]

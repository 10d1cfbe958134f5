"""`edgekit run` of models that tell objects apart, with their masks, and the same on the board."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.application import InputError as DeviceInputError
from edgekit.device.runtime.application import open as open_on_board
from tests.cli.test_detect import served
from tests.support.detectors import detector, instances

_SIZE = (64, 96)
_PICTURE = (200, 100)  # width, height: letterboxed to 96 x 48, 8 pixels from the top
_NAMES = {0: "cup", 1: "plate", 2: "fork"}


@pytest.fixture
def table(home):
    Image.new("RGB", _PICTURE, "gray").save(home / "table.png")
    return home / "table.png"


def _expected_sums(weights, maps, corners):
    """The sum of maps at the center of each pixel of the picture, interpolated between cells, and
    -1 outside the box. Sums of cells are within ±8."""
    total = np.clip(np.tensordot(weights, maps, 1), -8, 127 / 16)
    made = np.full((100, 200), -1.0)
    for y in range(100):
        for x in range(200):
            at_x, at_y = (x + 0.5) * 0.48, 8 + (y + 0.5) * 0.48
            if not (corners[0] <= at_x < corners[2] and corners[1] <= at_y < corners[3]):
                continue
            u, v = np.clip(at_x / 4 - 0.5, 0, 23), np.clip(at_y / 4 - 0.5, 0, 15)
            c, r = min(int(u), 22), min(int(v), 14)
            a, b = u - c, v - r
            part = total[r : r + 2, c : c + 2]
            made[y, x] = np.array([1 - b, b]) @ part @ np.array([1 - a, a])
    return made


def _model(folder, **more):
    """A model, and what it finds: class, score, sums of the mask in the picture."""
    path, maps, found = instances(folder, _SIZE, **{"names": _NAMES, **more})
    return path, [(n, s, _expected_sums(w, maps, c)) for n, s, c, w in found]


def _decoded(mask):
    """A mask of COCO's compressed run lengths."""
    height, width = mask["size"]
    counts, at, text = [], 0, mask["counts"].encode()
    while at < len(text):
        value, shift, more = 0, 0, True
        while more:
            c = text[at] - 48
            value |= (c & 31) << shift
            more, at, shift = bool(c & 32), at + 1, shift + 5
            if not more and c & 16:
                value |= -1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
    bits = np.repeat(np.arange(len(counts)) % 2, counts)
    return bits.reshape(width, height).T.astype(bool)


def _same(mask, sums) -> None:
    sure = np.abs(sums) > 1 / 16  # a step
    np.testing.assert_array_equal(mask[sure], sums[sure] > 0)


def test_objects_are_shown_drawn_and_written(edgekit, home, table):
    path, expected = _model(home)
    assert len(expected) > 3 and sum((sums > 0).sum() > 50 for *_, sums in expected) > 2
    done = edgekit("run", path, "--input", table, "--json")
    assert done.code == 0, done.err
    assert "finds objects and their masks, by the file's metadata" in done.err
    (run,) = done.document["inputs"]
    assert len(run["boxes"]) == len(expected)
    for box, (number, score, sums) in zip(run["boxes"], expected, strict=True):
        assert box["label"] == _NAMES[number] and box["score"] == pytest.approx(score, abs=1e-5)
        _same(_decoded(box["mask"]), sums)
    assert (
        f", {_decoded(run['boxes'][0]['mask']).sum()} pixels"
        in edgekit("run", "--input", table).out
    )
    drawn = np.asarray(Image.open(home / "table.out.png"))
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 4
    assert edgekit("run", "--input", table, "--output", "o.json").code == 0
    entry = json.loads((home / "o.json").read_text())[0]
    assert entry["segmentation"] == run["boxes"][0]["mask"]
    with open_on_board(root=home.parent / "home/boards/local") as model:
        found = model.instances(np.asarray(Image.open(table)))
        boxes = model.detect(np.asarray(Image.open(table)))
        with pytest.raises(DeviceInputError, match=r"found instances; compile it so, or use inst"):
            model.segment(b"", 1, 1)
    assert [each.box for each in found] == boxes
    for each, box in zip(found, run["boxes"], strict=True):
        mask = np.frombuffer(each.mask(*_PICTURE), np.uint8).reshape(100, 200)
        np.testing.assert_array_equal(mask, _decoded(box["mask"]))
        assert each.area == mask.sum()


@pytest.mark.slow
def test_a_server_gives_spans_and_detect_only_boxes(edgekit, home, table):
    path, expected = _model(home)
    assert edgekit("deploy", path).code == 0
    answers = served(home, home.parent / "home/boards/local", {"/instances": table.read_bytes()})
    found = json.loads(answers["/instances"][1])["instances"]
    assert len(found) == len(expected)
    for each, (*_, sums) in zip(found, expected, strict=True):
        mask = np.zeros((100, 200), bool)
        for row, left, right in each["spans"]:
            mask[row, left:right] = True
        _same(mask, sums)
    done = edgekit("run", path, "--input", table, "--json", "--task", "detect")
    (run,) = done.document["inputs"]
    assert len(run["boxes"]) == len(expected) and "mask" not in run["boxes"][0]


@pytest.mark.slow
def test_without_metadata_the_shapes_show_it_and_misfits_are_told(edgekit, home, table):
    path, _ = _model(home, task="", names="")
    said = edgekit("inspect", path).out
    assert "instances, because 'output0' is like YOLOv8's with masks" in said
    path = detector(home, {"output0": np.zeros((1, 9, 50), np.float32)}, _SIZE, task="segment",
                    names={0: "a"})  # fmt: skip
    done = edgekit("run", path, "--input", table)
    assert "its metadata states the task 'segment', whose outputs are not decoded" in done.err

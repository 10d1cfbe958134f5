"""`edgekit run` of a classifier on odd pictures, and with labels that do not fit."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_detect import served
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value

_NAMES = ("red left", "red right", "green left", "green right")


@pytest.fixture
def sides(home: Path) -> Path:
    """A classifier that tells which half of a picture is red, or green."""
    nodes = [
        node("AveragePool", ["images"], ["halves"], kernel_shape=[8, 4], strides=[8, 4]),
        node("Slice", ["halves", "zero", "two", "one"], ["some"]),
        node("Reshape", ["some", "shape"], ["y"]),
    ]
    constants = {
        "zero": np.array([0]), "two": np.array([2]), "one": np.array([1]),
        "shape": np.array([1, 4]),
    }  # fmt: skip
    (home / "m_labels.txt").write_text("\n".join(_NAMES))
    return save(model(nodes, [value("images", [1, 3, 8, 8])], ["y"], constants), home)


def _half(color: str, size=(16, 16)) -> Image.Image:
    """A picture whose left half has the color."""
    made = Image.new("RGB", size)
    made.paste(color, (0, 0, size[0] // 2, size[1]))
    return made


def _first(edgekit, sides: Path, name: str) -> str:
    done = edgekit("run", sides, "--input", name, "--json")
    assert done.code == 0, done.err
    best: str = done.document["inputs"][0]["top"][0][0]["label"]
    return best


def test_the_first_picture_of_an_animation_is_taken(edgekit, sides, home):
    first, second = _half("red"), _half("lime")
    first.save(home / "x.gif", save_all=True, append_images=[second, first])
    done = edgekit("run", sides, "--input", "x.gif")
    assert "x.gif: only the first of 3 pictures is taken; make a video for all\n" in done.err
    assert _first(edgekit, sides, "x.gif") == "red left"


@pytest.mark.slow
def test_the_server_scales_sixteen_bits(edgekit, sides, home):
    """Cut at 255, both halves would be white."""
    assert edgekit("deploy", sides, "--task", "classify").code == 0
    bits = np.full((16, 16), 300, np.uint16)
    bits[:, 8:] = 30000
    bodies = {}
    for picture in (Image.fromarray(bits), Image.fromarray(bits.astype(np.float32) / 30000)):
        file = io.BytesIO()
        picture.save(file, "TIFF")
        bodies[picture.mode] = file.getvalue()
    board = home.parent / "home/boards/local"
    ((code, found),) = served(home, board, {"/classify": bodies["I;16"]}).values()
    assert code == 200 and json.loads(found)["classes"][0]["label"] == "green right"
    ((code, said),) = served(home, board, {"/classify": bodies["F"]}).values()
    assert code == 400 and "found: pixels from 0.01 to 1" in said


@pytest.mark.slow
def test_pictures_are_turned_and_only_the_first_of_several_counts(edgekit, sides, home):
    turned = Image.Exif()
    turned[0x0112] = 3  # by 180 degrees
    _half("red").save(home / "a.jpg", exif=turned)
    assert _first(edgekit, sides, "a.jpg") == "red right"
    _half("red").save(home / "a.gif", save_all=True, append_images=[_half("lime")])
    assert _first(edgekit, sides, "a.gif") == "red left"
    _half("lime", (1, 1)).resize((2, 1)).save(home / "thin.png")
    assert edgekit("run", sides, "--input", "thin.png").code == 0


@pytest.mark.slow
def test_pictures_of_many_pixels(edgekit, sides, home):
    _half("lime", (9000, 5600)).save(home / "large.png", compress_level=1)
    assert _first(edgekit, sides, "large.png") == "green left"
    Image.new("1", (20000, 10000)).save(home / "huge.png")
    done = edgekit("run", sides, "--input", "huge.png")
    assert done.code == 2 and "expected a picture of at most" in done.err.splitlines()[-1]


def test_a_broken_picture_among_others_is_left_out(edgekit, sides, home):
    photos = home / "photos"
    photos.mkdir()
    _half("red").save(photos / "a.png")
    (photos / "b.png").write_bytes((photos / "a.png").read_bytes()[:60])
    _half("lime").save(photos / "c.png")
    for deployed in (False, True):
        done = edgekit("run", *[sides] * (not deployed), "--input", "photos", "--json")
        assert done.code == 2 and "left out 1 of 3 files: photos/b.png: expected a" in done.err
        best = {each["input"][-5:]: each["top"][0][0]["label"] for each in done.document["inputs"]}
        assert best == {"a.png": "red left", "c.png": "green left"}


def test_labels_of_another_length_are_refused(edgekit, sides, home):
    _half("red").save(home / "a.png")
    for count in (3, 5):
        (home / "l.txt").write_text("\n".join(map(str, range(count))))
        done = edgekit("run", sides, "--input", "a.png", "--labels", "l.txt")
        assert done.code == 2
        said = f"--labels: expected 4 labels for output 'scores', found {count}"
        assert said in done.err.splitlines()[-1]
    (home / "l.txt").write_text("p\nq\nr\ns")
    done = edgekit("run", sides, "--input", "a.png", "--labels", "l.txt")
    assert done.code == 0 and done.out.splitlines()[5].endswith("  p")


def test_input_that_cannot_fit_is_refused_before_compiling(edgekit, home):
    """The compiler, which takes minutes for large models, would tell what it finds."""
    boxes = np.random.default_rng(0).random((1, 7, 126)).astype(np.float32)
    path = detector(home, {"output0": boxes}, (64, 96), task="detect", names={0: "cat"})
    (home / "sound.wav").write_bytes(b"RIFF")
    (home / "words.txt").write_text("a cat\n")
    (home / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    ramp = np.linspace(0, 1, 64).reshape(8, 8)
    Image.fromarray((ramp * 1310700).astype(np.int32)).save(home / "deep.tif")
    Image.fromarray(ramp.astype(np.float32)).save(home / "real.tif")
    for name in ("a.mp3", "a.heic"):
        (home / name).write_bytes(b"\0\0\0\x18ftypheic")
    for name, expected in (
        ("sound.wav", "expected a picture for a model with --task detect, found a sound (.wav)"),
        ("words.txt", "expected a picture for a model with --task detect, found a text (.txt)"),
        ("cut.png", "expected a picture that Pillow reads"),
        ("a.mp3", "expected a sound as .wav, found .mp3; convert it: ffmpeg -i a.mp3 -ac 1 a.wav"),
        ("a.heic", "expected a picture as .bmp, "),
        ("deep.tif", "expected a picture that Pillow reads, found: pixels from 0 to 1.3107e+06"),
        ("real.tif", "expected a picture that Pillow reads, found: pixels from 0 to 1;"),
        ("none.png", "expected a file or folder with inputs, found nothing there"),
    ):
        done = edgekit("run", path, "--input", name)
        assert done.code == 2 and len(done.err.splitlines()) == 1
        assert f"{name}: {expected}" in done.err

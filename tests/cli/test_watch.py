"""The template that watches a folder, on the board `local`."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.host.deploy.api import connect
from edgekit.host.deploy.release import enroll_host
from tests.cli.conftest import ROOT
from tests.support.detectors import detector
from tests.support.patience import until

_MODELS = ROOT / "models"


def _watching(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What the program says until all files have results, of the deployed model."""
    board = home.parent / "home/boards/local"
    paths = {"PYTHONPATH": str(board / "current/runtime.pyz"), "EDGEKIT_ROOT": str(board)}
    words = (sys.executable, "eye/main.py", "--once", "--seconds", "0.01", *words)
    return subprocess.run(words, cwd=home, env={**os.environ, **paths}, capture_output=True,
                          text=True, check=False)  # fmt: skip


def _result(home: Path, name: str) -> dict:
    return json.loads((home / "watched" / f"{name}.json").read_text())


def test_it_runs_from_the_readme(edgekit, home):
    """In three commands."""
    enroll_host(connect("local"))
    assert edgekit("app", "new", "watch").code == 0
    assert {path.name for path in (home / "watch").iterdir()} == {
        "app.toml", "features.py", "main.py", "pictures.py", "sounds.py", "wake_words.py",
    }  # fmt: skip
    face = _MODELS / "face_detection_short_range.tflite"
    assert edgekit("app", "install", "watch", face).code == 0
    folder = home.parent / "home/boards/local/app/data/watched"
    shown = edgekit("app", "status").out
    assert f"watching {folder}" in shown
    shutil.copyfile(_MODELS / "astronaut.png", folder / "a.png")
    until(lambda: (folder / "a.png.json").exists())
    found = json.loads((folder / "a.png.json").read_text())
    assert (found["width"], found["boxes"][0]["label"]) == (512, "face")
    assert edgekit("app", "stop").code == 0


@pytest.fixture
def dogs(edgekit, home) -> Path:
    """The folder that a program watches, whose model finds a dog in any picture."""
    rows = np.array([[[20, 30, 80, 60, 0.9, 1], [0] * 6]], np.float32)
    names = {0: "cat", 1: "dog"}
    path = detector(home, {"y": rows}, (96, 160), task="detect", names=names, imgsz=[96, 160])
    assert edgekit("deploy", path).code == 0
    assert edgekit("app", "new", "watch", "eye").code == 0
    (home / "watched").mkdir()
    return home / "watched"


def test_each_file_gets_a_result_once(dogs, home):
    Image.new("RGB", (160, 96), "gray").save(dogs / "street.jpg")
    (dogs / "text.txt").write_text("no picture")
    for left_alone in (".hidden.jpg", "half.part"):
        (dogs / left_alone).write_bytes(b"x")
    (dogs / "folder").mkdir()
    done = _watching(home)
    assert done.returncode == 0 and done.stdout.startswith("street.jpg: ")
    (box,) = _result(home, "street.jpg")["boxes"]
    assert (box["label"], round(box["left"])) == ("dog", 20)
    said = "expected a picture that Pillow reads, found another file"
    assert _result(home, "text.txt") == {"error": said}
    assert len([*dogs.iterdir()]) == 7  # three more files, the folder, and two results
    assert _watching(home).stdout == ""
    Image.new("RGB", (320, 192), "gray").save(dogs / "street.jpg")
    later = (dogs / "street.jpg.json").stat().st_mtime_ns + 1
    os.utime(dogs / "street.jpg", ns=(later, later))
    assert _watching(home).stdout.startswith("street.jpg: ")
    assert _result(home, "street.jpg")["width"] == 320


def test_a_picture_of_a_picture_is_in_its_result(edgekit, home):
    """It is the same that run draws."""
    values = np.random.default_rng(1).uniform(0, 1, (1, 3, 64, 96)).astype(np.float32)
    path = detector(home, {"y": values}, (32, 48))
    Image.new("RGB", (96, 64), "gray").save(home / "street.png")
    done = edgekit("run", path, "--input", "street.png")
    assert "picture  street.png: 96 x 64, of 48 x 32 as the model takes it" in done.out, done.err
    assert "may be a picture, pixels from 0 to 1" in done.err
    assert edgekit("deploy", path, "--task", "image").code == 0
    assert edgekit("app", "new", "watch", "eye").code == 0
    (home / "watched").mkdir()
    shutil.copyfile(home / "street.png", home / "watched/street.png")
    assert _watching(home).returncode == 0
    image = _result(home, "street.png")["image"]
    made = Image.open(io.BytesIO(base64.b64decode(image["png"])))
    drawn = Image.open(home / "street.out.png")
    assert (image["width"], image["height"]) == made.size == drawn.size
    np.testing.assert_array_equal(np.asarray(made), np.asarray(drawn))
    expected = (values[0] * 255 + 0.5).astype(np.uint8).transpose(1, 2, 0)
    np.testing.assert_array_equal(np.asarray(drawn), expected)


def test_a_model_without_a_task_is_one_line(edgekit, home):
    path = detector(home, {"y": np.zeros((1, 7, 7), np.float32)}, (96, 160))
    assert edgekit("deploy", path).code == 0
    assert edgekit("app", "new", "watch", "eye").code == 0
    done = _watching(home)
    assert done.returncode == 1 and done.stderr.startswith("expected a model with a task, found")

"""The second half of the demo, as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.support.compiler_cache import home_with_shared_cache
from tests.support.patience import AMPLE

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[3]


def _find_face(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(_ROOT / "scripts" / "find_face.py"), *arguments],
        env=os.environ | {"EDGEKIT_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=AMPLE,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty board that shares the compiler cache."""
    return home_with_shared_cache(tmp_path / "home")


@pytest.mark.exhaustive
def test_the_face_its_cost_and_a_picture_are_shown(tmp_path, home):
    shown = tmp_path / "build" / "demo.png"
    done = _find_face(home, "--output", str(shown))
    assert done.returncode == 0, done.stderr
    face = re.search(r"score (\d\.\d+), box (\d+) x \d+ pixels at \((\d+), (\d+)\)", done.stdout)
    assert float(face[1]) > 0.9
    assert (85 < int(face[2]) < 105) and (170 < int(face[3]) < 190) and (70 < int(face[4]) < 90)
    assert re.search(r"latency +\d+\.\d+ ms median, \d+\.\d+ p10, \d+\.\d+ p90", done.stdout)
    assert "conv2d" in done.stdout
    assert "litert" in done.stdout
    with Image.open(shown) as picture:
        box_color = picture.convert("RGB").getpixel((int(face[3]), int(face[4]) + 40))
    assert box_color[1] > box_color[0] + 80


def test_a_missing_model_is_one_line(tmp_path, home):
    done = _find_face(home, "--model", str(tmp_path / "none.tflite"))
    assert done.returncode == 2
    assert done.stderr.startswith("find_face: ")
    assert done.stderr.count("\n") == 1

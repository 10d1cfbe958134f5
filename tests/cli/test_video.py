"""`edgekit run` on video files, which ffmpeg decodes; a program in its place writes pictures."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.detectors import built, detector
from tests.support.onnx_models import node

_SIZE = (64, 96)
# Notes its arguments, writes the file itself, and says what it is told to in $SAYS.
_FFMPEG = """#!{python}
import os, sys
open("arguments", "w").write(" ".join(sys.argv[1:]))
source = sys.argv[sys.argv.index("-i") + 1]
sys.stdout.buffer.write(open(source if os.path.isfile(source) else "live", "rb").read())
says = os.environ.get("SAYS", "")
print(says, file=sys.stderr)
sys.exit(1 if says else 0)
"""


def _pictures(*frames: np.ndarray) -> bytes:
    return b"".join(
        b"P6\n%d %d\n255\n" % (f.shape[1], f.shape[0]) + f.astype(np.uint8).tobytes()
        for f in frames
    )


@pytest.fixture
def ffmpeg(home: Path, monkeypatch) -> Path:
    program = home / "bin/ffmpeg"
    program.parent.mkdir()
    program.write_text(_FFMPEG.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.fixture
def model(home: Path) -> Path:
    """A detector with a box whose score is 0.4 in bright pictures, and below 0 in dark ones."""
    parts = {
        "box": np.array([[[10, 20, 40, 40, -0.4, 0], [5, 6, 7, 8, -1, 0]]], np.float32),
        "which": np.array([[[0, 0, 0, 0, 0.8, 0], [0] * 6]], np.float32),
    }
    nodes = [
        node("ReduceMax", ["images"], ["light"], keepdims=0),
        node("Mul", ["which", "light"], ["more"]),
        node("Add", ["box", "more"], ["y"]),
    ]
    return built(home, parts, nodes, ["y"], _SIZE, task="detect", names={0: "dog"})


def test_frames_are_told_of_one_by_one(edgekit, home, ffmpeg, model):
    dark, bright = np.zeros((50, 100, 3)), np.full((50, 100, 3), 255)
    (home / "street.mp4").write_bytes(_pictures(dark, bright, bright, dark))
    done = edgekit("run", model, "--input", "street.mp4")
    assert done.code == 0, done.err
    lines = [line for line in done.out.splitlines() if line.startswith("frame ")]
    assert [line[14:] for line in lines] == ["nothing", "dog 0.40", "dog 0.40", "nothing"]
    assert re.search(r"frames   4 of street\.mp4, [\d.]+ per second", done.err)
    assert (home / "arguments").read_text().endswith("street.mp4 -f image2pipe -c:v ppm -")


@pytest.mark.slow
def test_classes_and_segments_of_frames(edgekit, home, ffmpeg):
    (home / "x.mkv").write_bytes(_pictures(np.zeros((50, 100, 3))))
    scores = np.log(np.float32([[0.1, 0.8, 0.1]]))
    path = detector(home, {"y": scores}, _SIZE, task="classify", names={0: "a", 1: "b", 2: "c"})
    assert edgekit("run", path, "--input", "x.mkv").out.splitlines()[-1].endswith("  b 0.80")
    planes = np.zeros((1, 21, *_SIZE), np.float32)
    planes[:, 15, :, :24] = 1
    path = detector(home, {"y": planes}, _SIZE)
    done = edgekit("run", path, "--input", "x.mkv", "--task", "segment")
    assert done.out.splitlines()[-1].endswith("background 75%, person 25%")


@pytest.mark.parametrize(
    ("data", "says", "said"),
    [
        (b"", "", "x.mp4: expected a video with frames, found none"),
        (b"", "moov atom not found", "x.mp4: expected a video that ffmpeg reads, found: moov atom"),
        (b"text, no picture", "", "x.mp4: expected pictures of ffmpeg, found b'text, no"),
        (
            _pictures(np.zeros((5, 9, 3)))[:-1],
            "",
            "expected whole frames, found the end in",
        ),
    ],
)
def test_what_is_no_video_is_one_line(edgekit, home, ffmpeg, model, monkeypatch, data, says, said):
    (home / "x.mp4").write_bytes(data)
    monkeypatch.setenv("SAYS", says)
    done = edgekit("run", model, "--input", "x.mp4")
    assert done.code == 2 and said in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("camera", "words", "shown"),
    [
        ("/dev/video9", "-f v4l2 -i /dev/video9", "/dev/video9"),
        ("rtsp://me:secret@door:554/x", "-rtsp_transport tcp -i rtsp://me:secret@door:554/x",
         "rtsp://door:554/x"),
    ],
)  # fmt: skip
def test_a_camera_that_is_unplugged(
    edgekit, home, ffmpeg, model, monkeypatch, camera, words, shown
):
    """What it gave before is told, with the reason of its end and without its password."""
    bright = _pictures(np.full((50, 100, 3), 255))
    (home / "live").write_bytes(bright + bright + bright[: len(bright) // 2])
    monkeypatch.setenv("SAYS", "No such device")
    done = edgekit("run", model, "--input", camera)
    assert done.code == 2 and words in (home / "arguments").read_text()
    assert [line[14:] for line in done.out.splitlines() if "frame " in line] == ["dog 0.40"] * 2
    *_, told, why = done.err.splitlines()
    assert told.startswith(f"frames   2 of {shown}, ")
    said = "expected a video that ffmpeg reads, found: No such device"
    assert why == f"edgekit: {shown}: {said}"
    assert "secret" not in done.err


@pytest.mark.slow
def test_what_videos_need_is_said(edgekit, home, model, monkeypatch):
    (home / "x.mp4").write_bytes(b"")
    done = edgekit("run", model, "--input", "x.mp4", "--json")
    assert done.code == 2 and "it is shown frame by frame" in done.err.splitlines()[-1]
    assert edgekit("deploy", model).code == 0
    before = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(home))
    done = edgekit("run", "--input", "x.mp4")
    assert done.code == 2
    assert done.err.splitlines()[-1].endswith("found none; install it: sudo apt install ffmpeg")
    monkeypatch.setenv("PATH", before)
    path = detector(home, {"y": np.zeros((1, 7, 7), np.float32)}, _SIZE)
    done = edgekit("run", path, "--input", "x.mp4")
    assert done.code == 2 and "found no known task; see --task" in done.err.splitlines()[-1]

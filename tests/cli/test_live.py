"""The page of the template `serve`: pictures that programs send, with what was found in them."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.host.compiler.toolchain.zig import kernels_folder
from tests.support.browser import find_browser, running_browser
from tests.support.detectors import detector
from tests.support.patience import PATIENCE, until

pytestmark = pytest.mark.slow
_NAMES = {0: "cat", 1: "dog"}
_COLOR = (60, 180, 75)  # of the second class
_BOX = (20, 30, 80, 60)  # in the picture, which is as large as the input


@contextlib.contextmanager
def _serving(home: Path) -> Iterator[int]:
    """The port of the template's server, for what was deployed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    board = home.parent / "home/boards/local"
    paths = {"PYTHONPATH": str(board / "current/runtime.pyz"), "EDGEKIT_ROOT": str(board)}
    program = kernels_folder().parent / "templates/serve/main.py"
    words = [sys.executable, str(program), "--http", str(port)]
    with subprocess.Popen(words, cwd=home, env={**os.environ, **paths}) as server:
        try:
            until(lambda: _answers(port))
            yield port
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    try:
        return _asked(port, "/metrics").status == 200
    except ConnectionRefusedError:
        return False


def _asked(port: int, where: str, body: bytes | None = None, **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST" if body else "GET", where, body, headers)
    return connection.getresponse()


def _frame(stream) -> Image.Image:
    """The next picture of motion JPEG."""
    assert stream.readline().strip() == b"--edgekit-frame"
    lines = dict(line.split(": ") for line in iter(lambda: stream.readline().decode().strip(), ""))
    assert lines["Content-Type"] == "image/jpeg"
    made = Image.open(io.BytesIO(stream.read(int(lines["Content-Length"]))))
    assert stream.readline() == b"\r\n"
    return made.convert("RGB")


def _is_near(pixel, color) -> bool:
    return max(abs(a - b) for a, b in zip(pixel, color, strict=True)) < 60


@pytest.fixture
def door(edgekit, home) -> bytes:
    """A picture, in which the deployed model finds a dog."""
    rows = np.array([[[*_BOX, 0.9, 1], [0, 0, 0, 0, 0, 0]]], np.float32)
    path = detector(home, {"y": rows}, (96, 160), task="detect", names=_NAMES, imgsz=[96, 160])
    assert edgekit("deploy", path).code == 0
    file = io.BytesIO()
    Image.new("RGB", (160, 96), "gray").save(file, "PNG")
    return file.getvalue()


def test_frames_show_what_was_found(door, home):
    with _serving(home) as port, contextlib.ExitStack() as watched:
        about = _asked(port, "/", Accept="*/*").read()
        assert b'"inputs"' in about and about.startswith(b"{")
        page = _asked(port, "/", Accept="text/html,*/*", Host="<b>")
        assert page.headers["Content-Type"].startswith("text/html")
        text = page.read().decode()
        assert 'src="/frames"' in text and "http://&lt;b&gt;/detect" in text
        stream = watched.enter_context(_asked(port, "/frames"))
        assert _frame(stream).size == (640, 360)  # none yet
        assert _asked(port, "/detect", door).status == 200
        until(lambda: (made := _frame(stream)).size == (160, 96) and made)
        made = _frame(stream)  # the same once more
        for x, y in ((_BOX[0], 45), (_BOX[2], 45), (50, _BOX[3])):
            assert _is_near(made.getpixel((x, y)), _COLOR), (x, y)
        assert _is_near(made.getpixel((50, 45)), (128, 128, 128))
        for _ in range(3):
            _frame(watched.enter_context(_asked(port, "/frames")))
        refused = _asked(port, "/frames")
        said = b"expected at most 4 clients of /frames, found more\n"
        assert (refused.status, refused.read()) == (503, said)


@pytest.mark.skipif(not find_browser(), reason="no browser")
def test_a_browser_shows_them(door, home, tmp_path):
    """The last picture, not the one before."""
    with _serving(home) as port, running_browser(tmp_path) as browser:
        browser.open(f"http://127.0.0.1:{port}/", width=640, height=480)
        assert _asked(port, "/detect", door).status == 200

        def is_shown() -> bool:
            browser.picture(tmp_path / "page.png")
            with Image.open(tmp_path / "page.png") as page:
                colors = page.convert("RGB").getcolors(1 << 20)
            return sum(n for n, color in colors if _is_near(color, _COLOR)) > 500

        until(is_shown)
        assert browser.value("document.body.scrollWidth <= innerWidth")
        assert browser.complaints == []

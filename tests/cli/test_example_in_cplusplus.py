"""The example in C++ of the documentation: on this machine, and with CMake for another core."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.application import open as open_on_board
from edgekit.host.compiler.toolchain.application import write_application
from edgekit.kb.targets.board import load_board
from tests.cli.conftest import ROOT
from tests.device.test_cplusplus import PLAIN

_EXAMPLE = ROOT / "docs" / "examples" / "detect"
_AARCH64 = 183  # the machine in an ELF file


@pytest.mark.slow
def test_it_prints_what_python_finds(edgekit, home, face_model, tmp_path):
    assert edgekit("deploy", face_model, "--task", "detect").code == 0
    board = home.parent / "home/boards/local"
    with Image.open(ROOT / "models/astronaut.png") as photo:
        picture = photo.convert("RGB")
    picture.save(tmp_path / "face.ppm")
    with open_on_board(root=board) as model:
        (face,) = model.detect(np.asarray(picture))
    write_application(tmp_path, load_board("local"))
    program = tmp_path / "detect"
    libraries = [f"-I{tmp_path}", f"-L{tmp_path}", "-ledgekit-app", f"-Wl,-rpath,{tmp_path}"]
    sources = [str(_EXAMPLE / "main.cpp"), *libraries, "-o", str(program)]
    subprocess.run([*PLAIN, *sources], check=True)

    def said(*arguments: str) -> subprocess.CompletedProcess[str]:
        paths = {**os.environ, "EDGEKIT_ROOT": str(board)}
        return subprocess.run([program, *arguments], env=paths, capture_output=True, text=True)

    places = (face.left, face.top, face.right, face.bottom)
    numbers = " ".join(f"{place:6.0f}" for place in places)
    assert said(str(tmp_path / "face.ppm")).stdout == f"{face.score:6.3f} {numbers}  face\n"
    wrong = said(str(ROOT / "models/astronaut.png"))
    assert wrong.returncode == 2 and "expected a picture of type P6" in wrong.stderr


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed")
def test_cmake_compiles_it_for_another_core(tmp_path):
    """With the commands that the file names."""
    folder = tmp_path / "detect"
    shutil.copytree(_EXAMPLE, folder)
    write_application(folder / "edgekit", load_board("rpi4"))
    lines = re.findall(r"^#   (cmake .*)$", (folder / "CMakeLists.txt").read_text(), re.MULTILINE)
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in " && ".join(lines).split(" && "):
        subprocess.run(command.split(), cwd=folder, env={**os.environ, "PATH": paths}, check=True)
    made = (folder / "build" / "detect").read_bytes()
    assert made[:4] == b"\x7fELF" and int.from_bytes(made[18:20], "little") == _AARCH64

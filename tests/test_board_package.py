"""The packages of the board's side: Debian's, and what recipes of other systems unpack."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from edgekit.device.version import VERSION

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "docs" / "packages"


def test_recipes_are_for_this_version() -> None:
    assert (RECIPES / "yocto" / f"edgekit-board_{VERSION}.bb").is_file()
    makefile = (RECIPES / "buildroot" / "edgekit-board.mk").read_text()
    assert f"EDGEKIT_BOARD_VERSION = {VERSION}\n" in makefile
    assert (RECIPES / "debian" / "changelog").read_text().startswith(f"edgekit-board ({VERSION})")


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("dpkg-buildpackage"), reason="needs dpkg-dev")
def test_packages_are_built_and_run(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "board-package", tmp_path], check=True)
    package = tmp_path / f"edgekit-board_{VERSION}_all.deb"
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path / "root"], check=True)
    installed = tmp_path / "root" / "usr"
    command = (installed / "bin" / "edgekit-board").read_text()
    runtime = installed / "lib" / "edgekit-board" / "runtime.pyz"
    assert f" /{runtime.relative_to(tmp_path / 'root')} " in command
    here = [sys.executable, "-I", "-S", runtime, "--root", tmp_path / "board", "status"]
    status = json.loads(subprocess.check_output(here))
    assert (status["schema"], status["current"]) == ("edgekit.runtime.status/1", None)
    with tarfile.open(tmp_path / f"edgekit-board-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path / "source", filter="data")
    make = ["make", "-C", tmp_path / "source", "install", f"DESTDIR={tmp_path / 'image'}"]
    subprocess.run(make, check=True)
    image = tmp_path / "image" / "usr" / "lib" / "edgekit-board" / "runtime.pyz"
    assert image.read_bytes() == runtime.read_bytes()

"""`edgekit` is another project on the public index: nothing of ours sends people there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import edgekit.host
from edgekit.host.common.paths import DISTRIBUTION, install_command

_ROOT = Path(__file__).parents[2]
_FOREIGN = re.compile(r"\bedgekit\[|pip3? install [^\n`]*(?<![\w./-])edgekit(?![\w./-])")


def test_no_file_installs_the_distribution_of_somebody_else():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, check=True)
    found = []
    for name in listed.stdout.decode().split("\0"):
        path = _ROOT / name
        if not path.is_file() or path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or a model
        found += [f"{name}: {match[0]}" for match in _FOREIGN.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_foreign"),
    [
        ("pip install edgekit", True),
        ("pip install 'edgekit[onnx]'", True),
        ("python -m pip install --upgrade edgekit", True),
        ("pip install 'edgekit-compiler[onnx]'", False),
        ("pip install -e '/home/me/edgekit[onnx]'", True),  # as a checkout may be named anything
        ("pip install -e '.[onnx]'", False),
        ("pip install /tmp/edgekit-compiler.whl", False),
    ],
)
def test_what_counts_as_the_foreign_name(text: str, is_foreign: bool):
    assert bool(_FOREIGN.search(text)) is is_foreign


def test_the_name_that_messages_say_is_the_name_that_is_built():
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION != "edgekit"
    assert project["scripts"] == {"edgekit": "edgekit.host.cli.main:run"}


def test_an_extra_is_installed_from_the_checkout_that_runs():
    root = Path(edgekit.host.__file__).resolve().parents[1]
    assert install_command("onnx") == f"{sys.executable} -m pip install -e '{root}[onnx]'"

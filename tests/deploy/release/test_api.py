"""The names a user imports from edgekit.host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import edgekit.host
from edgekit.host import connect
from edgekit.host.errors import InputError


def test_local_board_lives_under_edgekit_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    assert connect().status().current is None
    assert (tmp_path / "home" / "boards" / "local").is_dir()


@pytest.mark.parametrize(
    ("board", "commands"),
    [
        ("a57", ["edgekit board up a57", "edgekit board add a57 --host USER@"]),
        ("a76", ["edgekit board add a76 --host USER@"]),
        ("nosuch", ["edgekit board add nosuch --host USER@", "edgekit boards"]),
    ],
)
def test_boards_that_are_not_there_get_the_commands_that_make_them(
    board: str, commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="expected a board that can be reached") as error:
        connect(board)
    assert all(command in str(error.value) for command in commands)


def test_unknown_profile_for_compiling() -> None:
    with pytest.raises(InputError, match=r"expected a board profile, found 'nosuch'"):
        edgekit.host.compile_model("x.tflite", board="nosuch")


def test_names_come_when_they_are_used() -> None:
    code = (
        "import sys, edgekit.host as h; assert 'edgekit.host.deploy' not in sys.modules\n"
        "assert all(getattr(h, n) for n in h.__all__) and 'edgekit.host.deploy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        edgekit.host.nonsense  # noqa: B018

"""scripts/replay: which compiled models a change affects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


def _replay(*arguments: str, cwd: Path = _ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(cwd / "scripts" / "replay.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with this folder's code and a model that compiles instantly."""
    place = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(_ROOT), str(place)], check=True)
    for name in ("replay.py", "replay_models.py"):
        (place / "scripts" / name).write_bytes((_ROOT / "scripts" / name).read_bytes())
    return place


_FEW = ("--board", "a57", "--only", "okay_nabu")


@pytest.mark.exhaustive
def test_what_did_not_change_is_the_same(clone):
    done = _replay("HEAD", *_FEW, cwd=clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 compiled models are the same, 0 not" in done.stdout


@pytest.mark.exhaustive
def test_a_change_of_the_generated_code_is_shown(clone):
    emit = clone / "host" / "compiler" / "codegen" / "emit.py"
    text = emit.read_text()
    assert "int ek_operators(void)" in text
    emit.write_text(text.replace("int ek_operators(void)", "int  ek_operators(void)"))
    done = _replay("HEAD", *_FEW, cwd=clone)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "a57/okay_nabu.tflite/run.c" in done.stdout and "+int  ek_operators" in done.stdout


def test_an_unknown_commit_is_one_line(clone):
    done = _replay("no-such-commit", *_FEW, cwd=clone)
    assert done.returncode == 2
    assert "expected a commit, found 'no-such-commit'" in done.stdout and not done.stderr

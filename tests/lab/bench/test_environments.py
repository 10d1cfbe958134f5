"""Engines in separate environments; wheels come from a folder, not from the network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.environments import EngineWheels, interpreter

MODEL = Path("model.tflite")
TOY = {"toy": EngineWheels(("toy_engine",), ("toy-engine",), suffixes=(".tflite",))}


@pytest.fixture
def shown(tmp_path, monkeypatch) -> list[str]:
    """The list of progress messages, with wheels from `tmp_path`."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.delenv("EDGEKIT_NO_FETCH", raising=False)
    return []


def _wheel(folder) -> None:
    info = "toy_engine-1.dist-info"
    with zipfile.ZipFile(folder / "toy_engine-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("toy_engine.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-engine\nVersion: 1\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_an_engine_is_fetched_once_and_again_after_an_interruption(shown, tmp_path):
    _wheel(tmp_path)
    python = interpreter("toy:fast", MODEL, shown.append, TOY)
    assert python != sys.executable
    subprocess.run([python, "-c", "import toy_engine"], check=True)
    assert interpreter("toy:slow", MODEL, shown.append, TOY) == python
    assert shown == ["fetching toy, once"]

    # an interrupted fetch leaves an environment that is not ready, which is replaced
    (tmp_path / "home" / "cache" / "engines" / "toy" / "ready").unlink()
    assert interpreter("toy", MODEL, shown.append, TOY) == python and len(shown) == 2


@pytest.mark.slow
@pytest.mark.exhaustive
def test_an_engine_that_cannot_be_had_says_why(shown):
    with pytest.raises(InputError, match=r"toy-engine could not be installed: .*toy-engine"):
        interpreter("toy", MODEL, shown.append, TOY)


def test_nothing_is_fetched_where_that_is_forbidden(shown, monkeypatch):
    monkeypatch.setenv("EDGEKIT_NO_FETCH", "1")
    with pytest.raises(InputError, match="not installed, and EDGEKIT_NO_FETCH is set; unset it"):
        interpreter("toy", MODEL, shown.append, TOY)
    assert not shown


def test_an_engine_that_is_here_needs_no_environment(shown):
    assert interpreter("edgekit", MODEL, shown.append) == sys.executable


def test_nothing_is_fetched_for_models_that_an_engine_does_not_run(shown):
    with pytest.raises(InputError, match=r"runs \.tflite models only"):
        interpreter("toy", Path("model.onnx"), shown.append, TOY)
    assert not shown

"""Wake words of models without a task, in the templates that listen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import ROOT
from tests.support.wyoming import heard_by, wyoming_server


def _wav(path: Path, samples: Any) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(np.round(np.asarray(samples) * 32767).astype("<i2").tobytes())


@pytest.mark.slow
def test_wake_words_of_features_are_heard_over_wyoming_and_in_files(edgekit, home):
    """microWakeWord's models have no task: the programs compute their features."""
    assert edgekit("deploy", ROOT / "models/okay_nabu.tflite").code == 0
    board, spoken = (
        home.parent / "home/boards/local",
        dict(np.load(ROOT / "tests/support/wake_word.npz")),
    )
    quiet = np.zeros(8000)
    with wyoming_server(board) as port:
        ((_, about),) = heard_by(port, [("describe", {})], [])
        assert [m["name"] for m in about["wake"][0]["models"]] == ["okay_nabu"]
        for name, kinds in (("okay_nabu", ["detection"]), ("open_the_door", ["not-detected"])):
            sound = np.concatenate([quiet, spoken[name] / 32768, quiet])
            assert [kind for kind, _ in heard_by(port, [], sound)] == kinds
    assert edgekit("app", "new", "watch", "ear").code == 0
    (home / "watched").mkdir()
    _wav(home / "watched/door.wav", np.concatenate([quiet, spoken["okay_nabu"] / 32768, quiet]))
    paths = {"PYTHONPATH": str(board / "current/runtime.pyz"), "EDGEKIT_ROOT": str(board)}
    words = (sys.executable, "ear/main.py", "--once", "--seconds", "0.01")
    subprocess.run(words, cwd=home, env={**os.environ, **paths}, check=True)
    ((heard),) = json.loads((home / "watched/door.wav.json").read_text())["heard"]
    assert heard["label"] == "okay_nabu" and heard["score"] > 0.85

"""Models of whole sounds, whose last window ends where the sound does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.application import listen
from edgekit.device.runtime.application import open as open_on_board
from tests.cli.test_hearing import _RATE, _tone, _wav
from tests.support.onnx_models import model, node, save, value


def late_or_early(folder: Path) -> Path:
    """A model of 30 rows of 8 bands, 0.32 s, that tells whether the end or the start is louder; its
    last window ends where the sound does."""
    weights = np.zeros((30, 8, 3), np.float32)
    weights[24:, :, 1] = weights[:6, :, 2] = 0.1
    constants = {
        "flat": np.array([1, 240]),
        "weights": weights.reshape(240, 3),
        "bias": np.array([[-25, 0, 0]], np.float32),
    }
    nodes = [
        node("Reshape", ["x", "flat"], ["row"]),
        node("MatMul", ["row", "weights"], ["product"]),
        node("Add", ["product", "bias"], ["logits"]),
    ]
    features = "bands = 8\nhigh = 8000\noffset = 1e-3\nlast = true\n"
    labels = 'labels = ["silence", "late", "early"]\n'
    (folder / "m.toml").write_text(f"[features]\n{features}{labels}")
    return save(model(nodes, [value("x", [1, 30, 8])], ["logits"], constants, opset=13), folder)


def test_the_last_window_ends_where_the_sound_does(edgekit, home):
    """Also of a sound that is shorter than a window, before which there is silence."""
    path = late_or_early(home)
    for quiet in (0, 10100):
        sound = np.concatenate([np.zeros(quiet), _tone(0.06, 300)])
        _wav(home / "a.wav", sound)
        done = edgekit("run", path, "--input", "a.wav", "--json")
        assert done.code == 0, done.err
        (heard,) = done.document["inputs"][0]["heard"]
        assert (heard["label"], heard["end"]) == ("late", pytest.approx(len(sound) / _RATE))
        assert heard["start"] == pytest.approx(max(0, len(sound) - 5120) / _RATE)
        with open_on_board(root=home.parent / "home/boards/local") as opened:
            listener, found = listen(opened), []
            for start in range(0, len(sound), 777):
                found += listener.feed(sound[start : start + 777])
            found += listener.finish()
        assert [(each.label, each.end) for each in found] == [("late", heard["end"])]

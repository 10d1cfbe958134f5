"""Audio features of the application template `microphone` for wake words.

wake_word.npz: "okay nabu" and "open the door please", spoken by flite 2.2 with its voice rms, and
the features of the first from pymicro-features 2.0.2, TensorFlow Lite Micro's front end.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SOUNDS = np.load(Path(__file__).parents[1] / "support" / "wake_word.npz")
CODE = 26 / 255  # quantization step of the models' 8-bit inputs
MODULE = resources.files("edgekit.device") / "templates" / "microphone" / "features.py"
IN_PARTS = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("features", sys.argv[1])
features = importlib.util.module_from_spec(spec)
spec.loader.exec_module(features)
assert features.numpy is None
ear, data = features.Features(), sys.stdin.buffer.read()
for at in range(0, len(data), 100):
    for row in ear.of(data[at : at + 100]):
        print(*row)
"""


@pytest.fixture
def features() -> ModuleType:
    """The template's module."""
    spec = importlib.util.spec_from_file_location("features", str(MODULE))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_features_are_nearly_those_of_the_front_end(features: ModuleType) -> None:
    found = np.array(features.Features().of(SOUNDS["okay_nabu"].tobytes()))
    wanted = SOUNDS["features"] * features.SCALE
    assert found.shape == wanted.shape
    apart = np.abs(found - wanted) / CODE
    assert apart.mean() < 0.5
    assert np.percentile(apart, 90) < 1


def test_features_need_no_numpy_and_come_bit_by_bit(features: ModuleType) -> None:
    """A Python without site-packages computes them without NumPy."""
    data = SOUNDS["okay_nabu"][:4000].tobytes()
    with_numpy = np.array(features.Features().of(data))
    command = [sys.executable, "-I", "-S", "-B", "-c", IN_PARTS, str(MODULE)]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    without = np.loadtxt(io.BytesIO(done.stdout))
    assert without.shape == with_numpy.shape
    assert np.abs(with_numpy - without).max() <= features.SCALE


def test_silence_has_no_features(features: ModuleType) -> None:
    assert not np.any(features.Features().of(bytes(16000)))

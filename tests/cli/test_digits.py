"""scripts/digits.py on synthetic digits in scikit-learn's format, and accuracy after quantize."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")

_SCRIPT = Path(__file__).parents[2] / "scripts" / "digits.py"
_COUNT, _SEEN = 1264, 1200


def _table(path: Path, columns: int = 65) -> Path:
    """A table of noisy 8x8 images of ten patterns, with their labels."""
    rng = np.random.default_rng(2)
    patterns = rng.integers(0, 17, (10, 64))
    classes = rng.integers(0, 10, _COUNT)
    pixels = np.clip(patterns[classes] + rng.integers(-6, 7, (_COUNT, 64)), 0, 16)
    rows = np.concatenate([pixels, classes[:, None]], axis=1)[:, :columns]
    path.write_bytes(gzip.compress("\n".join(",".join(map(str, r)) for r in rows).encode()))
    return path


def _script(*args: object) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, str(_SCRIPT), *map(str, args)]
    return subprocess.run(run, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive
@pytest.mark.slow  # trains for ten seconds
def test_classes_that_were_learned_survive_quantization(edgekit: Any, tmp_path: Path) -> None:
    done = _script(_table(tmp_path / "digits.csv.gz"), "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"of {_COUNT - _SEEN} digits right" in done.stdout
    line = ("--samples", tmp_path / "digits.npz", "--evaluate", tmp_path / "labels.txt", "--json")
    made = edgekit("quantize", tmp_path / "digits.onnx", *line, "-o", tmp_path / "y.onnx")
    assert made.code == 0, made.err
    found = made.document["classes"]
    assert found["float_right"] > 0.9
    assert found["quantized_right"] >= found["float_right"] - 0.07  # one of 16 held-out samples
    assert all(layer["quantized"] for layer in made.document["layers"])


@pytest.mark.parametrize("columns", [64, 1])
def test_another_table_is_refused(columns: int, tmp_path: Path) -> None:
    done = _script(_table(tmp_path / "digits.csv.gz", columns), "-o", tmp_path)
    assert done.returncode == 2 and "rows of 65 numbers, found" in done.stderr


def test_a_missing_table_is_reported(tmp_path: Path) -> None:
    done = _script(tmp_path / "none.csv.gz", "-o", tmp_path)
    assert done.returncode == 2 and "none.csv.gz" in done.stderr and "Trace" not in done.stderr

"""The folder of `scripts/bundle-offline` installs edgekit where there is no network."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALONE = ("unshare", "--net", "--map-root-user")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not shutil.which("unshare")
        or subprocess.run([*ALONE, "true"], check=False).returncode != 0,
        reason="needs network namespaces",
    ),
]


def test_a_model_is_deployed_without_a_network(tmp_path: Path) -> None:
    here = {**os.environ, "EDGEKIT_HOME": str(tmp_path / "here")}
    kept = tmp_path / "here" / "cache" / "roots" / "arm64-bookworm-0"
    kept.mkdir(parents=True)
    folder = tmp_path / "folder"
    subprocess.run([ROOT / "scripts" / "bundle-offline", folder, "onnx"], env=here, check=True)
    shutil.copy(ROOT / "models" / "okay_nabu.tflite", tmp_path)
    script = "sh folder/install venv && . venv/bin/activate && edgekit deploy okay_nabu.tflite"
    away = {**os.environ, "EDGEKIT_HOME": str(tmp_path / "away"), "PYTHONPATH": ""}
    done = subprocess.run(
        [*ALONE, "sh", "-c", script], cwd=tmp_path, env=away, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "away" / "cache" / "roots" / kept.name).is_dir()

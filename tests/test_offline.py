"""The folder of `scripts/bundle-offline` installs edgekit where there is no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
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


def _engine(folder: Path) -> None:
    """An engine that a benchmark fetched, with a Python that is only here; and one of a Python that
    the other machine does not have."""
    venv.create(folder / "fast")
    (packages,) = (folder / "fast" / "lib").glob("python*/site-packages")
    (packages / "fast.py").touch()
    for link in (folder / "fast" / "bin").glob("python*"):
        link.unlink()
        link.symlink_to(folder / "python")
    (folder / "old" / "lib" / "python3.1" / "site-packages").mkdir(parents=True)


def test_a_model_is_deployed_without_a_network(tmp_path: Path) -> None:
    here = {**os.environ, "EDGEKIT_HOME": str(tmp_path / "here")}
    kept = tmp_path / "here" / "cache" / "roots" / "arm64-bookworm-0"
    kept.mkdir(parents=True)
    _engine(tmp_path / "here" / "cache" / "engines")
    folder = tmp_path / "folder"
    subprocess.run([ROOT / "scripts" / "bundle-offline", folder, "onnx"], env=here, check=True)
    shutil.copy(ROOT / "models" / "okay_nabu.tflite", tmp_path)
    shutil.rmtree(tmp_path / "here")
    script = "sh folder/install venv && . venv/bin/activate && edgekit deploy okay_nabu.tflite"
    away = {**os.environ, "EDGEKIT_HOME": str(tmp_path / "away"), "PYTHONPATH": ""}
    done = subprocess.run(
        [*ALONE, "sh", "-c", script], cwd=tmp_path, env=away, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    cache = tmp_path / "away" / "cache"
    assert (cache / "roots" / kept.name).is_dir()
    engine = cache / "engines" / "fast" / "bin" / "python"
    imports = [engine, "-c", "import fast, sys; print(fast.__file__, sys.base_prefix)"]
    place, base = subprocess.check_output(imports, text=True).split()
    assert (cache in Path(place).parents, base) == (True, sys.base_prefix)
    assert not (cache / "engines" / "old").exists()  # of a Python that is not here

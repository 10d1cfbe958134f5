"""Building an image when builds are killed or two run in parallel."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.host.common.paths import cache_folder
from edgekit.host.debian.architecture import ARM64
from edgekit.host.virtual.image import recipe_hash

pytestmark = [pytest.mark.boards, pytest.mark.long]

_PROGRAM = """
from edgekit.host.virtual.image import ensure_image
from edgekit.host.debian.architecture import ARM64
print(ensure_image(ARM64, None, lambda step: print(step, flush=True)).folder.name, flush=True)
"""


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without images that reuses downloaded packages."""
    packages = cache_folder() / "boards" / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    (cache_folder() / "boards").mkdir(parents=True)
    (cache_folder() / "boards" / "packages").symlink_to(packages)
    return cache_folder() / "boards"


def _build() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True)


def test_killed_build_leaves_no_image_and_the_next_one_clears_up(empty_cache):
    name = f"{ARM64.label}-{recipe_hash()}"
    for step in ("packages", "root file system", "kernel", "disks"):
        with _build() as build:
            assert build.stdout is not None
            assert any(line.strip() == step for line in build.stdout)
            build.send_signal(signal.SIGKILL)
        assert not (empty_cache / name).exists()
    with _build() as build:
        assert build.communicate()[0].splitlines()[-1] == name
    assert [path.name for path in empty_cache.glob(f".{ARM64.label}*")] == []


def test_two_builds_at_once_make_one_image(empty_cache):
    builds = [_build() for _ in range(2)]
    said = [build.communicate()[0].splitlines() for build in builds]
    assert all(build.returncode == 0 for build in builds)
    assert sorted(len(lines) for lines in said) == [1, 6]
    assert said[0][-1] == said[1][-1]

"""A home of its own for the records of boards, over the user's cache of images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.host.paths import cache_folder


@contextlib.contextmanager
def _home(folder: Path) -> Iterator[Path]:
    (folder / "cache").symlink_to(cache_folder())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For a module's boards: those of the user stay as they are."""
    with _home(tmp_path_factory.mktemp("home")) as folder:
        yield folder


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[Path]:
    """The same for one test."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _home(tmp_path) as folder:
        yield folder

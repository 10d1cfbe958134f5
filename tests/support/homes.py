"""A home of its own for the records of boards, over the user's cache of images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.host.common.paths import cache_folder


@contextlib.contextmanager
def home_over_the_cache(folder: Path) -> Iterator[Path]:
    """Makes `folder` the home; boards that run elsewhere are not seen from there."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    (folder / "cache").symlink_to(cache_folder())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_HOME", str(folder))
        yield folder

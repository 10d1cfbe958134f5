"""A separate home for board records, sharing the user's image cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.host.common.paths import cache_folder


@contextlib.contextmanager
def home_over_the_cache(folder: Path) -> Iterator[Path]:
    """Make `folder` the home; boards running under another home are not visible from it."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    (folder / "cache").symlink_to(cache_folder())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_HOME", str(folder))
        yield folder

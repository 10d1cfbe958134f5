"""What was compiled for one test is not compiled again for another, whose home is its own."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.common.paths import cache_folder

_CACHE = cache_folder()  # before a test has a home of its own


def home_with_shared_cache(home: Path) -> Path:
    """Makes the folder for EDGEKIT_HOME, whose cache is the user's."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    if not (home / "cache").exists():
        (home / "cache").symlink_to(_CACHE)
    return home

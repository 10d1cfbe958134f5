"""The folders in which edgekit keeps things on the host. EDGEKIT_HOME moves all of it."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """What must not be lost: the private board `local`, later history."""
    return _folder("user_data_path", "")


def cache_folder() -> Path:
    """What can be made again: objects, libraries, golden vectors."""
    return _folder("user_cache_path", "cache")


def config_folder() -> Path:
    """What the user wrote, or had written: the boards."""
    return _folder("user_config_path", "config")


def state_folder() -> Path:
    """What only tells what happened: the log."""
    return _folder("user_state_path", "state")


def _folder(kind: str, below: str) -> Path:
    home = os.environ.get("EDGEKIT_HOME")
    if home:
        return Path(home).absolute() / below
    import platformdirs

    found: Path = getattr(platformdirs, kind)("edgekit")
    return found

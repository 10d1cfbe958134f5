"""The folders in which edgekit keeps things on the host, all moved by EDGEKIT_HOME, and how to add
to the installation that runs.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import edgekit.device

DISTRIBUTION = "edgekit-compiler"  # `edgekit` is another project on the public index


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


def install_command(extra: str) -> str:
    """What installs an extra of pyproject.toml where edgekit runs: into its Python, from its
    checkout if it runs from one."""
    root = Path(next(iter(edgekit.device.__path__))).resolve().parent
    editable = (root / "pyproject.toml").is_file()
    what = ["-e", f"{root}[{extra}]"] if editable else [f"{DISTRIBUTION}[{extra}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *what])


def _folder(kind: str, below: str) -> Path:
    home = os.environ.get("EDGEKIT_HOME")
    if home:
        return Path(home).absolute() / below
    import platformdirs

    found: Path = getattr(platformdirs, kind)("edgekit")
    return found

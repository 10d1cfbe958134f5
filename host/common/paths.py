"""Folders that edgekit uses on the host, and how to install extras.

EDGEKIT_HOME moves all of the folders.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import edgekit.device

DISTRIBUTION = "edgekit-compiler"  # `edgekit` is another project on the public index


def data_folder() -> Path:
    """Data that must not be lost: the private board `local`, later the history."""
    return _platform_folder("user_data_path", "")


def cache_folder() -> Path:
    """Data that can be rebuilt: objects, libraries, golden vectors."""
    return _platform_folder("user_cache_path", "cache")


def config_folder() -> Path:
    """Configuration written by the user or on their behalf: the boards."""
    return _platform_folder("user_config_path", "config")


def state_folder() -> Path:
    """Records of past events only: the log."""
    return _platform_folder("user_state_path", "state")


def install_command(extra: str) -> str:
    """The command that installs an extra of pyproject.toml into the running Python, from the
    checkout if edgekit runs from one."""
    root = Path(next(iter(edgekit.device.__path__))).resolve().parent
    editable = (root / "pyproject.toml").is_file()
    what = ["-e", f"{root}[{extra}]"] if editable else [f"{DISTRIBUTION}[{extra}]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *what])


def _platform_folder(kind: str, below: str) -> Path:
    home = os.environ.get("EDGEKIT_HOME")
    if home:
        return Path(home).absolute() / below
    import platformdirs

    found: Path = getattr(platformdirs, kind)("edgekit")
    return found

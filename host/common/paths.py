"""Folders that edgekit uses on the host, and how to install extras.

EDGEKIT_HOME moves all of the folders.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import edgekit.device

_NEAR = 0.8  # of two file names that are alike
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


def near_file(path: Path, suffixes: tuple[str, ...] = ()) -> str:
    """Advice for a file that is not there: `; did you mean ...?` with a file of its folder
    (`suffixes`: of these only), or how to fetch an address; empty if nothing is near."""
    import difflib

    if found := re.match(r"(https?):/+(.+)", str(path)):  # pathlib keeps one of two slashes
        return f"; fetch it first: curl -LO {found[1]}://{found[2]}"
    try:
        files = [file for file in path.parent.iterdir() if file.is_file()]
    except OSError:
        return ""
    names = [file.name for file in files if not suffixes or file.suffix.lower() in suffixes]
    near = [name for name in names if Path(name).stem == path.name]
    near = near or difflib.get_close_matches(path.name, names, 1, _NEAR)
    return f"; did you mean {path.parent / near[0]}?" if len(near) == 1 else ""

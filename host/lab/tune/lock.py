"""Allows one tuner at a time per board, since two would disturb each other's measurements."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from edgekit.host.common.paths import data_folder
from edgekit.host.errors import BusyError


@contextlib.contextmanager
def tuning_alone(board: str, holder: str) -> Iterator[None]:
    """Holds the board's lock, which the operating system releases if the process dies.

    Raises BusyError naming the current holder.
    """
    path = data_folder() / "tune" / f"{board}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(_in_use(board, path)) from None
        file.truncate(0)
        file.write(holder)
        file.flush()
        os.fsync(file.fileno())
        yield


def _in_use(board: str, path: Path) -> str:
    other = path.read_text(encoding="utf-8", errors="replace").strip() or "an unknown one"
    return (
        f"board '{board}': expected no other tuner, found {other}; "
        "wait for it, or stop it: its measurements are kept"
    )

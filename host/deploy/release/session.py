"""The host side of a board's deploy lock: tracks which deploys of this host are alive.

Each deploy holds a flock on its own file while it runs. If a board is locked by a deploy of this
host whose file is not flocked, that deploy was killed or lost its link: its lock is taken over at
once instead of after the board's timeout.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import secrets
import socket
import time
from pathlib import Path

from edgekit.device.runtime.agent.manifest import is_release_id
from edgekit.host.common.paths import data_folder
from edgekit.host.errors import InputError

_LONG_AGO_SECONDS = 86400


class DeployLock:
    """A deploy of this process: `token` is alive until `end`, and stale after a lost link."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        folder = data_folder() / "deploys"
        self._path = folder / self.token
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _delete_stale(folder)
            self._file = self._path.open("w")
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            raise InputError(
                f"{self._path}: expected to write there, found: {error.strerror}; "
                "set EDGEKIT_HOME to a folder of your own"
            ) from None

    def end(self, board_knows: bool) -> None:
        """Ends the deploy; if the board could not be notified, the next deploy does that."""
        if board_knows:
            self._path.unlink(missing_ok=True)
        self._file.close()


def is_stale(token: str) -> bool:
    """Whether `token` is a deploy of this host that ended without notifying its board."""
    if not is_release_id(token):
        return False
    try:
        with (data_folder() / "deploys" / token).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def forget(token: str) -> None:
    """Drops a stale deploy after its board was notified."""
    (data_folder() / "deploys" / token).unlink(missing_ok=True)


def _delete_stale(folder: Path) -> None:
    """Drops deploys that died long ago: their locks on the boards have timed out."""
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _LONG_AGO_SECONDS and is_stale(file.name):
                file.unlink()


def owner() -> str:
    """Identifies this deploy's owner to users who have to wait for it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"

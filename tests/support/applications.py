"""Sample user applications."""

from __future__ import annotations

from pathlib import Path

from edgekit.device.runtime.agent.app_folder import AppFolder, AppState
from edgekit.device.runtime.agent.store import Store

UNWATCHED = "watchdog_seconds = 0"


def write_application(folder: Path, program: str, settings: str = UNWATCHED) -> Path:
    """A one-file application whose watchdog tolerates the pauses of a busy machine."""
    folder.mkdir()
    (folder / "main.py").write_text(program)
    (folder / "app.toml").write_text(settings)
    return folder


def state_of(board: Path) -> AppState:
    """The application's state, without starting a process on the board."""
    return AppFolder(Store(board)).state()

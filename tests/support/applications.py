"""Sample user applications."""

from __future__ import annotations

from pathlib import Path

UNWATCHED = "watchdog_seconds = 0"


def write_application(folder: Path, program: str, settings: str = UNWATCHED) -> Path:
    """A one-file application whose watchdog tolerates the pauses of a busy machine."""
    folder.mkdir()
    (folder / "main.py").write_text(program)
    (folder / "app.toml").write_text(settings)
    return folder

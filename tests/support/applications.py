"""Applications as users write them."""

from __future__ import annotations

from pathlib import Path

UNWATCHED = "watchdog_seconds = 0"


def write_application(folder: Path, program: str, settings: str = UNWATCHED) -> Path:
    """An application of one file, which may be silent for as long as a busy machine takes."""
    folder.mkdir()
    (folder / "main.py").write_text(program)
    (folder / "app.toml").write_text(settings)
    return folder

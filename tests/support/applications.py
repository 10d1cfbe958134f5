"""Applications as users write them."""

from __future__ import annotations

from pathlib import Path


def write_application(folder: Path, program: str, settings: str = "") -> Path:
    """An application of one file."""
    folder.mkdir()
    (folder / "main.py").write_text(program)
    (folder / "app.toml").write_text(settings)
    return folder

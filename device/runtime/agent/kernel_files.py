"""Small kernel files that hold one value each."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Optional


def read_text(path: Path) -> Optional[str]:
    """Returns a kernel file's text without the newline; None if it is unreadable."""
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def read_number(path: Path) -> Optional[float]:
    """Returns the number in a kernel file, or None."""
    with contextlib.suppress(ValueError, TypeError):
        return float(read_text(path) or "")
    return None

"""Small files in which the kernel tells one thing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Optional


def read_text(path: Path) -> Optional[str]:
    """What a file of the kernel says, without its end of line; None where it says nothing."""
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def read_number(path: Path) -> Optional[float]:
    """The number in a file of the kernel; None where there is none."""
    with contextlib.suppress(ValueError, TypeError):
        return float(read_text(path) or "")
    return None

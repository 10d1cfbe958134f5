"""What arguments of the runtime's commands must be."""

from __future__ import annotations

import argparse
from pathlib import Path

_MOST_THREADS = 256  # a slip of the keyboard must not stall the board


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, found {text!r}")
    return int(text)


def threads(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST_THREADS:
        raise argparse.ArgumentTypeError(f"expected 1 to {_MOST_THREADS}, found {text!r}")
    return int(text)


def release_id(text: str) -> str:
    from edgekit.device.agent.manifest import is_release_id

    if not is_release_id(text):
        raise argparse.ArgumentTypeError(f"expected 16 hex digits, found {text[:40]!r}")
    return text


def folder(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise argparse.ArgumentTypeError("expected a home directory, found none") from None

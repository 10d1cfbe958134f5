"""Memory alignment of tensors."""

from __future__ import annotations

ALIGN = 64  # bytes: a cache line, and the widest vector


def round_up(n: int, multiple: int) -> int:
    """Round `n` up to a multiple of `multiple`."""
    return -(-n // multiple) * multiple

"""The alignment of tensors in memory."""

from __future__ import annotations

ALIGN = 64  # bytes: a cache line, and the widest vector


def round_up(n: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below n."""
    return -(-n // multiple) * multiple

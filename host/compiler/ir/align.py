"""Where tensors and their elements lie in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

ALIGN = 64  # bytes: a cache line, and the widest vector


def round_up(n: int, multiple: int) -> int:
    """Round `n` up to a multiple of `multiple`."""
    return -(-n // multiple) * multiple


def strides_of(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Byte strides of a contiguous array."""
    after = list(itertools.accumulate([size, *reversed(shape)], lambda a, b: a * b))
    return tuple(reversed(after[:-1]))

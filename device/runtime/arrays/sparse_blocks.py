"""Block settings of sparse matrices, and the patent's rule for the block width."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Mapping

from edgekit.device.runtime.errors import InputError

LINE_BYTES = 64
_SEED = 2024  # the patent starts from a random width; a fixed seed makes runs repeatable
_WIDEST_START = 64
_LARGEST = (1 << 31) - 1
DEFAULT_WINDOW = 4096  # rows sorted together: enough for power laws, and y stays in the L1 cache


@dataclass(frozen=True)
class BlockSettings:
    """Storage settings of a matrix, chosen by the knowledge base.

    width: slots of a block, the unit of work for threads. window: rows sorted together by length,
    0: keep the row order. wide_from: rows with at least this many non-zeros span all lanes, 0:
    decided by padding. diagonal: strips of few diagonals store one column per slot. windows: dense
    enough rows are cut into windows of columns, if the core has permute instructions for them.
    index_bytes: minimum width of column indices: 0 (whatever fits), 1, 2 or 4. columns: columns per
    part of the matrix, 0: all; each part has its own strips, so that its share of x stays in the L2
    cache; there are fewer parts if rows would have less than two non-zeros in each.
    """

    width: int
    window: int = DEFAULT_WINDOW
    wide_from: int = 0
    diagonal: bool = True
    windows: bool = True
    index_bytes: int = 0
    columns: int = 0

    def __post_init__(self) -> None:
        for name, least in (("width", 1), ("window", 0), ("wide_from", 0), ("columns", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or not least <= value <= _LARGEST:
                raise InputError(
                    f"block settings: expected {name} of {least} to {_LARGEST}, found {value!r}"
                )
        if self.index_bytes not in (0, 1, 2, 4):
            raise InputError(
                f"block settings: expected index_bytes 0, 1, 2 or 4, found {self.index_bytes!r}"
            )

    @staticmethod
    def of(value: Mapping[str, Any]) -> BlockSettings:
        """Parses a JSON object; InputError for unknown fields or values out of range."""
        try:
            return BlockSettings(**value)
        except TypeError as error:
            raise InputError(f"block settings: {error}; see edgekit lab kb lookup --spmv") from None


def block_width(start: int, mean: float, lanes: int, register_lanes: int, line: int) -> int:
    """Computes the patent's block width, in elements.

    start: first guess; mean: non-zeros per row; lanes: of the vector instruction; register_lanes:
    of a SIMD register; line: elements of a cache line.
    """
    x = max(int(mean + 0.5), 1) if start > lanes else start
    if x > line:
        return 2 * x if x % 2 == 0 else 2 * (x + 1)
    if register_lanes < x < line:
        return x // register_lanes * register_lanes
    if x < register_lanes:
        return (x + 9) // 10 * 10
    return x


def default_settings(mean: float, lanes: int, value_bytes: int) -> BlockSettings:
    """Returns the rule's width for `mean` non-zeros per row, and defaults for the other
    settings."""
    start = random.Random(_SEED).randint(lanes + 1, _WIDEST_START + lanes)
    return BlockSettings(block_width(start, mean, lanes, lanes, LINE_BYTES // value_bytes))

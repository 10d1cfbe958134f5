"""How a sparse matrix is cut into blocks: settings, and the patent's rule for a block's width."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Mapping

from edgekit.device.runtime.errors import InputError

LINE_BYTES = 64
_SEED = 2024  # the patent starts from a random width; ours is the same in every run
_WIDEST_START = 64
_LARGEST = (1 << 31) - 1
DEFAULT_WINDOW = 4096  # rows sorted together: enough for power laws, y stays in the L1 cache


@dataclass(frozen=True)
class BlockSettings:
    """How a matrix is stored; the knowledge base chooses among them.

    width: slots of a block, the unit in which threads share work. window: rows sorted together by
    length, 0: rows stay in order. wide_from: rows of so many non-zeros lie over all lanes, 0: where
    padding says so. diagonal: strips of few diagonals store one column per slot. windows: rows that
    are dense enough are cut into windows of columns, where the core has permutations for them.
    index_bytes: the least width of column indices: 0 (what holds them), 1, 2 or 4. columns: of a
    part of the matrix, 0: of all; each part has strips of its own, so that its share of x stays in
    the L2 cache; fewer parts where rows have less than two non-zeros in each.
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
        """The settings in a JSON object; InputError for unknown fields or values out of range."""
        try:
            return BlockSettings(**value)
        except TypeError as error:
            raise InputError(f"block settings: {error}; see edgekit lab kb lookup --spmv") from None


def block_width(start: int, mean: float, lanes: int, register_lanes: int, line: int) -> int:
    """The patent's block width, in elements.

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
    """The rule's width for a matrix with `mean` non-zeros per row, the rest as it suits most."""
    start = random.Random(_SEED).randint(lanes + 1, _WIDEST_START + lanes)
    return BlockSettings(block_width(start, mean, lanes, lanes, LINE_BYTES // value_bytes))

"""Costs of 3x3 convolutions by Winograd's transform, and their division among threads.

The unit is vector multiply-adds and equivalents, as measured on 64-bit ARM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.device.runtime.kernel_facts import WINOGRAD_BYTES
from edgekit.kb.targets.isa import Isa, Tile

POINTS = 36  # multiplications per tile, for each pair of channels
_IN, _OUT = 300, 270  # cost of a tile's transforms, per vector of input and of output channels
_MAKING = 500  # cost of transforming a vector of weights


@dataclass(frozen=True)
class Transformed:
    """A convolution of `tiles` tiles of 4x4 pixels, from `c` to `oc` channels in vectors of `vl`;
    `tile` is the register tile."""

    tiles: int
    c: int
    oc: int
    vl: int
    tile: Tile

    @property
    def groups(self) -> int:
        """Groups of tiles that are multiplied together."""
        return math.ceil(self.tiles / self.tile.mr)

    @property
    def panels(self) -> int:
        return math.ceil(self.oc / (self.tile.nv * self.vl))

    @property
    def _multiply_cost(self) -> float:
        """Cost of the multiplications of one tile."""
        return POINTS * (self.c * self.oc / self.vl * 1.3 + self.oc)

    def cost(self, threads: int = 1) -> float:
        """The total cost; with several threads, as if each did as much as the busiest one."""
        if threads > 1:
            return threads * self._busiest_thread_cost(self.parts(threads), threads)
        transforms = _IN * self.c / self.vl + _OUT * self.oc / self.vl
        return self.tiles * transforms + self._rows * self._multiply_cost

    @property
    def _rows(self) -> int:
        """Multiplied rows: the last group takes a half or a quarter of a register tile if that
        holds its tiles."""
        mr, rest = self.tile.mr, self.tiles % self.tile.mr
        last = next(n for n in (0, mr // 4, mr // 2, mr) if rest <= n)
        return self.tiles - rest + last

    def parts(self, threads: int) -> int:
        """The number of parts into which panels are divided.

        Each part is a task per group, and transforms its tiles again. Returns the fewest parts that
        minimize the work of the busiest thread.
        """
        if threads == 1:
            return 1
        return min(
            range(1, self.panels + 1), key=lambda n: (self._busiest_thread_cost(n, threads), n)
        )

    def _busiest_thread_cost(self, parts: int, threads: int) -> float:
        """The cost of the busiest thread with `parts` parts."""
        rows = min(self.tile.mr, self.tiles)
        tasks = math.ceil(self.groups * parts / threads)
        panels = min(tasks * math.ceil(self.panels / parts) / self.panels, tasks)
        inner = _OUT * self.oc / self.vl + self._multiply_cost
        return rows * (math.ceil(tasks / parts) * _IN * self.c / self.vl + panels * inner)


def has_winograd(dtype: str, isa: Isa) -> bool:
    """True if the transform is used for a type; elsewhere direct convolutions run at the core's
    peak and read less."""
    return dtype in ("f32", "f16") and isa.lanes and isa.registers >= 32


def has_room(tile: Tile, c: int, dtype: str) -> bool:
    """Whether the kernel has room for a group of tiles with `c` channels."""
    return tile.mr * c * _value_bytes(dtype) <= WINOGRAD_BYTES


def making_cost(c: int, oc: int, vl: int) -> float:
    """The cost of transforming weights when a model runs."""
    return _MAKING * c * oc / vl


def count_tiles(y: tuple[int, int, int]) -> int:
    """The tiles of 4x4 pixels in images `y` [n, oh, ow]."""
    n, height, width = y
    return n * math.ceil(height / 4) * math.ceil(width / 4)


def transformed_bytes(c: int, oc: int, dtype: str) -> int:
    """The size of the transformed weights."""
    return POINTS * c * oc * _value_bytes(dtype)


def _value_bytes(dtype: str) -> int:
    return 2 if dtype == "f16" else 4

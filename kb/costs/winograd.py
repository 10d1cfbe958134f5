"""What a 3x3 convolution by Winograd's transform costs, and how threads share it.

In vector multiply-adds and what is like them, as measured on 64-bit ARM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.kb.targets.isa import Isa, Tile

POINTS = 36  # products of a tile, for each pair of channels
_IN, _OUT = 300, 270  # of a tile's transforms, for each vector of input and of output channels


@dataclass(frozen=True)
class Transformed:
    """A convolution of `tiles` of 4x4 pixels, `c` by `oc` channels in vectors of `vl`, of which a
    register tile multiplies some."""

    tiles: int
    c: int
    oc: int
    vl: int
    tile: Tile

    @property
    def groups(self) -> int:
        """Of tiles that are multiplied together."""
        return math.ceil(self.tiles / self.tile.mr)

    @property
    def panels(self) -> int:
        return math.ceil(self.oc / (self.tile.nv * self.vl))

    @property
    def _products(self) -> float:
        """Of one tile."""
        return POINTS * (self.c * self.oc / self.vl * 1.3 + self.oc)

    def cost(self, threads: int = 1) -> float:
        """On several threads, of all as if each did what the busiest one does."""
        if threads > 1:
            return threads * self._busiest(self.parts(threads), threads)
        transforms = _IN * self.c / self.vl + _OUT * self.oc / self.vl
        return self.tiles * transforms + self.groups * self.tile.mr * self._products

    def parts(self, threads: int) -> int:
        """Into how many parts the panels are cut: each makes a task of every group, and transforms
        its tiles again. The fewest with which the busiest thread has least to do."""
        if threads == 1:
            return 1
        return min(range(1, self.panels + 1), key=lambda n: (self._busiest(n, threads), n))

    def _busiest(self, parts: int, threads: int) -> float:
        """The cost of what the thread does that has most, with so many parts."""
        rows = min(self.tile.mr, self.tiles)
        tasks = math.ceil(self.groups * parts / threads)
        panels = min(tasks * math.ceil(self.panels / parts) / self.panels, tasks)
        inner = _OUT * self.oc / self.vl + self._products
        return rows * (math.ceil(tasks / parts) * _IN * self.c / self.vl + panels * inner)


def has_winograd(dtype: str, isa: Isa) -> bool:
    """Whether convolutions of a type are transformed on an instruction set: elsewhere direct ones
    run at the core's peak and read less."""
    return dtype == "f32" and isa.lanes and isa.registers >= 32

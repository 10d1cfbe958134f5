"""Costs of 3x3 convolutions by Winograd's transform, and their division among threads.

The unit is vector multiply-adds and equivalents, as measured on 64-bit ARM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.device.runtime.kernel_facts import WINOGRAD_BYTES
from edgekit.host.compiler.ir.align import round_up
from edgekit.kb.targets.isa import LANE_REGISTERS, ByteProduct, Isa, Tile

BYTES = ("s8", "u8")
POINTS = 36  # multiplications per tile, for each pair of channels
_FEW_TILES = 4  # with so few, a register tile covers more channels instead
GROUP = 8  # channels of x that bytes are transformed at once; of y, that they are multiplied by
_MAKING = 500  # cost of transforming a vector of weights


@dataclass(frozen=True)
class Rates:
    """Costs of a tile: of its transforms, per vector of input and of output channels, and of a
    vector of products at each point; and the factor where several threads share a cache."""

    into: float
    out: float
    products: float
    together: float = 1.0


FLOATS = Rates(300, 270, 1.3)
# In direct products of bytes, which take 0.4 for one of them.
_BYTES_IN_ORDER, _BYTES_OUT_OF_ORDER = Rates(350, 700, 1.8, 1.25), Rates(380, 760, 2.85, 1.25)


@dataclass(frozen=True)
class Transformed:
    """A convolution of `tiles` tiles of 4x4 pixels, from `c` to `oc` channels in vectors of `vl`;
    `tile` is the register tile."""

    tiles: int
    c: int
    oc: int
    vl: int
    tile: Tile
    rates: Rates = FLOATS

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
        return POINTS * (self.c * self.oc / self.vl * self.rates.products + self.oc)

    def cost(self, threads: int = 1) -> float:
        """The total cost; with several threads, as if each did as much as the busiest one."""
        if threads > 1:
            busiest = self._busiest_thread_cost(self.parts(threads), threads)
            return threads * busiest * self.rates.together
        transforms = (self.rates.into * self.c + self.rates.out * self.oc) / self.vl
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
        inner = self.rates.out * self.oc / self.vl + self._multiply_cost
        into = self.rates.into * self.c / self.vl
        return rows * (math.ceil(tasks / parts) * into + panels * inner)


def has_winograd(dtype: str, isa: Isa) -> bool:
    """True if the transform is used for a type. Elsewhere direct convolutions run at the core's
    peak and read less, as those of bytes by dot products."""
    if dtype in BYTES:
        return isa.winograd and isa.registers >= LANE_REGISTERS and isa.i8 is ByteProduct.MULL16
    return isa.winograd and dtype in ("f32", "f16")


def register_tiles(dtype: str, isa: Isa) -> list[Tile]:
    """The kernel's register tiles, the usual one first."""
    if dtype in BYTES:
        return [Tile(8, 2), Tile(4, 2)]
    spills = isa.vl > 1 and isa.registers < LANE_REGISTERS
    return [Tile(4, 2)] if spills else [Tile(8, 2), Tile(4, 4)]


def tiles_of(dtype: str, y: tuple[int, int, int], c: int, isa: Isa) -> list[Tile]:
    """The register tiles for images `y` that the kernel has room for with `c` channels, the usual
    one first."""
    few = count_tiles(y) <= _FEW_TILES
    known = register_tiles(dtype, isa)[:: -1 if few else 1]
    fitting = [tile for tile in known if tile.mr * c * _value_bytes(dtype) <= WINOGRAD_BYTES]
    return fitting[:1] if dtype in BYTES else fitting  # fewer tiles read more weights per product


def transformed(
    dtype: str,
    y: tuple[int, int, int],
    channels: tuple[int, int],
    vl: int,
    tile: Tile,
    in_order: bool,
) -> Transformed:
    """The work of a convolution to images `y`, between so many channels."""
    c, oc = channels_computed(dtype, channels)
    if dtype not in BYTES:
        return Transformed(count_tiles(y), c, oc, vl, tile)
    rates = _BYTES_IN_ORDER if in_order else _BYTES_OUT_OF_ORDER
    return Transformed(count_tiles(y), c, oc, vl, tile, rates)


def channels_computed(dtype: str, channels: tuple[int, int]) -> tuple[int, int]:
    """The channels of x and y that the kernel computes for `channels`: those of bytes in groups."""
    group = GROUP if dtype in BYTES else 1
    return round_up(channels[0], group), round_up(channels[1], group)


def making_cost(c: int, oc: int, vl: int) -> float:
    """The cost of transforming weights when a model runs."""
    return _MAKING * c * oc / vl


def count_tiles(y: tuple[int, int, int]) -> int:
    """The tiles of 4x4 pixels in images `y` [n, oh, ow]."""
    n, height, width = y
    return n * math.ceil(height / 4) * math.ceil(width / 4)


def transformed_bytes(c: int, oc: int, dtype: str) -> int:
    """The size of the transformed weights; those of bytes are of 16 bits."""
    return POINTS * math.prod(channels_computed(dtype, (c, oc))) * _value_bytes(dtype)


def _value_bytes(dtype: str) -> int:
    return 4 if dtype == "f32" else 2

"""What the lowering must know of each instruction set: the facts of device/kernels/simd/*.h.

A test holds this table against the headers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ByteProduct(enum.Enum):
    """How 8-bit products are made; see device/kernels/conv/i8_conv.c."""

    DOT4_US = "EK_I8_DOT4_US"
    DOT4_SS = "EK_I8_DOT4_SS"
    PAIR16 = "EK_I8_PAIR16"
    WIDE16 = "EK_I8_WIDE16"

    @property
    def group(self) -> int:
        """Values along k that one product takes."""
        return {"EK_I8_PAIR16": 2, "EK_I8_WIDE16": 1}.get(self.value, 4)

    @property
    def is_dot(self) -> bool:
        return self.group == 4


@dataclass(frozen=True)
class Tile:
    """Register tile: mr pixels x nv vectors of output channels."""

    mr: int
    nv: int


@dataclass(frozen=True)
class Isa:
    """One header of device/kernels/simd: vector length in 32-bit lanes, tiles that fit."""

    simd: str
    vl: int
    lanes: bool
    i8: ByteProduct
    f32_tiles: tuple[Tile, ...]
    i8_tiles: tuple[Tile, ...]

    @property
    def k_step(self) -> int:
        """The packed k of 8-bit kernels is a multiple of this."""
        return self.i8.group * (self.vl if self.lanes else 1)


_TABLE = (
    Isa("scalar", 1, False, ByteProduct.WIDE16, (Tile(4, 4),), (Tile(4, 4),)),
    Isa("sse2", 4, False, ByteProduct.PAIR16, (Tile(4, 2),), (Tile(4, 2),)),
    Isa("avx2", 8, False, ByteProduct.PAIR16, (Tile(6, 2), Tile(8, 1)), (Tile(4, 2),)),
    Isa(
        "avx512vnni",
        16,
        False,
        ByteProduct.DOT4_US,
        (Tile(8, 3), Tile(12, 2), Tile(14, 1)),
        (Tile(4, 4), Tile(8, 3), Tile(8, 2)),
    ),
    Isa("neon", 4, True, ByteProduct.WIDE16, (Tile(8, 2), Tile(6, 3)), (Tile(8, 2),)),
    Isa("neondot", 4, True, ByteProduct.DOT4_SS, (Tile(8, 2), Tile(6, 3)), (Tile(8, 2),)),
    Isa("neon32", 4, True, ByteProduct.WIDE16, (Tile(4, 2),), (Tile(4, 2),)),
    Isa("rvv128", 8, False, ByteProduct.WIDE16, (Tile(7, 2),), (Tile(7, 2),)),
)
ISAS = {isa.simd: isa for isa in _TABLE}

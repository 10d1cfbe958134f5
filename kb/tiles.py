"""Register tiles of each instruction set: the one list that kernels, methods and tuner share.

A tile is mr rows of C x nv vectors of its columns. The first tile of a list is the one for large
products. Spills were looked for in the assembly of each: 14 x 2 vectors of AVX-512 do spill.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES = {"f32": 4, "s8": 1, "u8": 1}  # of one element of A or B


@dataclass(frozen=True, order=True)
class Tile:
    """Register tile: mr rows (pixels) x nv vectors of columns (output channels)."""

    mr: int
    nv: int


@dataclass(frozen=True)
class Tiles:
    """Of one header of device/kernels/simd: vector length in 32-bit lanes, tiles that fit."""

    vl: int
    f32: tuple[Tile, ...]
    i8: tuple[Tile, ...]

    def of(self, dtype: str) -> tuple[Tile, ...]:
        """The tiles for products of `dtype` (f32, s8 or u8)."""
        return self.f32 if dtype == "f32" else self.i8


_AVX512 = Tiles(
    16,
    (Tile(8, 3), Tile(12, 2), Tile(14, 1)),
    (Tile(4, 4), Tile(8, 3), Tile(8, 2), Tile(16, 1)),
)
TILES = {
    "scalar": Tiles(1, (Tile(4, 4),), (Tile(4, 4),)),
    "sse2": Tiles(4, (Tile(4, 2),), (Tile(4, 2),)),
    "avx2": Tiles(8, (Tile(6, 2), Tile(8, 1)), (Tile(4, 2),)),
    "avx512vnni": _AVX512,
    "avx512amx": _AVX512,
    "neon": Tiles(4, (Tile(8, 2), Tile(6, 3)), (Tile(4, 1),)),
    "neondot": Tiles(4, (Tile(8, 2), Tile(6, 3)), (Tile(8, 2),)),
    "neon32": Tiles(4, (Tile(4, 2),), (Tile(2, 1),)),
    "rvv128": Tiles(8, (Tile(7, 2),), (Tile(7, 2), Tile(3, 4))),
}


@dataclass(frozen=True)
class Columns:
    """Heights of the tile codes that are 1, 2, ... vectors wide, for every width up to the last.

    The library of a board holds all heights up to these, so every tile above is among them.
    """

    f32: tuple[int, ...]
    i8: tuple[int, ...]
    i8_vectors: int = 0  # rows up to which tiles of bytes use vectors; higher ones: AMX. 0: all
    # Panels of floats that are read from rows apart lose to shallow copies: true of the Intel cores
    # that have AMX; on AMD's Zen 4 they were read in place at 1.06 of the best peer.
    copies_f32: bool = False

    def of(self, dtype: str) -> tuple[int, ...]:
        """The heights for products of `dtype` (f32, s8 or u8)."""
        return self.f32 if dtype == "f32" else self.i8

    def vector_rows(self, dtype: str) -> int:
        """The rows above which tiles use AMX; 0: none do."""
        return 0 if dtype == "f32" else self.i8_vectors


_AVX512_F32 = (24, 14, 9, 6, 5, 4, 3, 3)
_NEON_F32 = (24, 12, 8, 5, 4, 4, 3, 3)
COLUMNS = {
    "scalar": Columns((8, 6, 5, 4), (8, 6, 5, 4)),
    "sse2": Columns((8, 4, 3, 2), (8, 4, 2, 2)),
    "avx2": Columns((12, 6, 3, 2, 2, 1, 1, 1), (8, 4, 2, 2)),
    "avx512vnni": Columns(_AVX512_F32, (24, 12, 8, 6, 4, 4, 3, 3)),
    "avx512amx": Columns(_AVX512_F32, (32, 32, 16, 16, 4, 4, 3, 3), i8_vectors=4, copies_f32=True),
    "neon": Columns(_NEON_F32, (4, 2, 2, 1)),
    "neondot": Columns(_NEON_F32, (12, 8, 7, 5)),
    "neon32": Columns((10, 6, 3, 2), (2, 1)),
    "rvv128": Columns((12, 7, 4, 3), (12, 7, 4, 3)),
}

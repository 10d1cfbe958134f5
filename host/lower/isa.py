"""What the lowering must know of each instruction set: the facts of device/kernels/simd/*.h.

A test holds this table against the headers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from edgekit.kb.tiles import TILES, Tile


class ByteProduct(enum.Enum):
    """How 8-bit products are made; see device/kernels/gemm/i8_tile.h."""

    DOT4_US = "EK_I8_DOT4_US"
    DOT4_SS = "EK_I8_DOT4_SS"
    PAIR16 = "EK_I8_PAIR16"
    WIDE16 = "EK_I8_WIDE16"
    MULL16 = "EK_I8_MULL16"

    @property
    def group(self) -> int:
        """Values along k that one product takes."""
        return {"EK_I8_PAIR16": 2, "EK_I8_WIDE16": 1, "EK_I8_MULL16": 16}.get(self.value, 4)

    @property
    def reads_bytes(self) -> bool:
        """Rows of x are read as they are, not widened to 16 bits."""
        return self is not ByteProduct.PAIR16

    @property
    def wide_weights(self) -> bool:
        """Weights have 16 bits, and their zero point is already subtracted."""
        return self in (ByteProduct.PAIR16, ByteProduct.WIDE16)

    @property
    def flips_unsigned(self) -> bool:
        """Both factors are signed: u8 is seen as x - 128; otherwise s8 as x + 128."""
        return self in (ByteProduct.DOT4_SS, ByteProduct.MULL16)


@dataclass(frozen=True)
class Isa:
    """One header of device/kernels/simd; `vl` in 32-bit lanes, tiles from kb/tiles.py."""

    simd: str
    vl: int
    lanes: bool
    i8: ByteProduct
    f32_tiles: tuple[Tile, ...]
    i8_tiles: tuple[Tile, ...]

    @property
    def registers(self) -> int:
        """Vectors that a core holds, at least."""
        return 32 if self.simd in (*_AVX512, "neon", "neondot") else 16

    @property
    def masks_loads(self) -> bool:
        """vf_load_masked: a load that leaves lanes out."""
        return self.simd in _AVX512

    @property
    def multiplies_pairs(self) -> bool:
        """EK_PAIRS: vi_pair16, the sum of two 16-bit products in each lane."""
        return self.simd in ("sse2", "avx2", *_AVX512)

    @property
    def widens_eight(self) -> bool:
        """EK_CODES8: 16-bit products are added eight at a time, whatever the vector's length."""
        return self.simd in _WITH_LANES

    @property
    def k_step(self) -> int:
        """The packed k of 8-bit kernels is a multiple of this."""
        return self.i8.group * (self.vl if self.i8 is ByteProduct.DOT4_SS else 1)


_AVX512 = ("avx512vnni", "avx512amx")
_WITH_LANES = ("neon", "neondot", "neon32")
_BYTE_PRODUCTS = {
    "scalar": ByteProduct.WIDE16,
    "sse2": ByteProduct.PAIR16,
    "avx2": ByteProduct.PAIR16,
    "avx512vnni": ByteProduct.DOT4_US,
    "avx512amx": ByteProduct.DOT4_US,
    "neon": ByteProduct.MULL16,
    "neondot": ByteProduct.DOT4_SS,
    "neon32": ByteProduct.MULL16,
    "rvv128": ByteProduct.WIDE16,
}
ISAS = {
    simd: Isa(simd, TILES[simd].vl, simd in _WITH_LANES, product, TILES[simd].f32, TILES[simd].i8)
    for simd, product in _BYTE_PRODUCTS.items()
}

# Vectors of output channels that the emulated NNA makes at once: what fits into registers beside
# four points; 2 where not named.
NNA_VECTORS = {"neon": 1, "neon32": 1, "sse2": 1, "neondot": 4}

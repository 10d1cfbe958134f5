"""Instruction sets: one small TOML file each, kb/simd/NAME.toml beside device/kernels/simd/NAME.h.

Lowering, GEMM methods, tuner and tests read all they know of an instruction set here. A file may
inherit from another one. A test holds the files against the headers.
"""

from __future__ import annotations

import enum
import functools
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

FOLDER = Path(__file__).parent / "simd"
BYTES = {"f32": 4, "s8": 1, "u8": 1}  # of one element of A or B

TileKind = Literal["upright", "turned", "tall"]


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
    def is_dot(self) -> bool:
        """One instruction makes and adds four products of bytes in each lane."""
        return self in (ByteProduct.DOT4_US, ByteProduct.DOT4_SS)

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


class Tile(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Register tile: mr rows (pixels) x nv vectors of columns (output channels)."""

    mr: int
    nv: int


class Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Heights of the tile codes that are 1, 2, ... vectors wide, for every width up to the last.

    The library of a board holds all heights up to these, so every tile of `Isa` is among them.
    `i8_vectors`: the rows up to which tiles of bytes use vectors; higher ones use AMX; 0: all do.
    `copies_f32`: panels of floats that are read from rows apart lose to shallow copies.
    """

    f32: tuple[int, ...]
    i8: tuple[int, ...]
    i8_vectors: int = 0
    copies_f32: bool = False

    def of(self, dtype: str) -> tuple[int, ...]:
        """The heights for products of `dtype` (f32, s8 or u8)."""
        return self.f32 if dtype == "f32" else self.i8

    def vector_rows(self, dtype: str) -> int:
        """The rows above which tiles use AMX; 0: none do."""
        return 0 if dtype == "f32" else self.i8_vectors


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes into a tile, in sixteenths of a vector multiply-add.

    For each k (of bytes: each four of k): `product`, of a vector by one line, a tile having no
    fewer than `wide`; `line` and `vector`, loads of the two operands; `far`, one more of a vector
    in a panel beyond half of L1 that is read again. Of a B of bytes: `group`, a vector that becomes
    groups; `panel`, the same for each four vectors of a panel; `crossing`, a panel beside others
    that is not of whole cache lines. `passing`: a vector of floats, the first times that a B in
    place is read; `packing`: a row of A, in whole vectors, packed on the way.

    For C, all of k together: `tile`; `spilled`, one more where sums and vectors of B take all
    registers; `segment`, a line of a tile; `paged`, one more where lines are pages apart;
    `stored`, a vector; `partial`, a line that ends in part of one; `element`, of C against its
    rows; `start`, the whole product.

    Of "tall" tiles, which use AMX, more lines than one register's count as two registers, and k
    as whole steps.
    """

    product: int
    wide: int
    line: int
    vector: int
    far: int = 0
    group: int = 0
    panel: int = 0
    crossing: int = 0
    passing: int = 0
    packing: int = 0
    tile: int = 0
    spilled: int = 0
    segment: int = 0
    paged: int = 0
    stored: int = 0
    partial: int = 0
    element: int = 0
    start: int = 0


class KindPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prices of the tiles that products of one type have; `tall` only with AMX."""

    upright: Prices
    turned: Prices
    tall: Prices | None = None


class TilePrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of products of floats and of bytes."""

    f32: KindPrices
    i8: KindPrices


class Isa(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known of one instruction set, whose header is device/kernels/simd/`simd`.h.

    `vl`: 32-bit lanes of a vector; `registers`: vectors that a core holds, at least; `i8`: how
    8-bit products are made; `f32_tiles`, `i8_tiles`: register tiles that do not spill, the one for
    large products first; `columns`: the tile codes of a board's library; `prices`: what goes into
    a tile; `nna_vectors`: vectors of output channels that the emulated NNA makes at once, which
    fit into registers beside four points.

    `lanes`: EK_LANES, products with one lane of a vector; `masks_loads`: vf_load_masked, a load
    that leaves lanes out; `multiplies_pairs`: EK_PAIRS, the sum of two 16-bit products in each
    lane; `widens_eight`: EK_CODES8, 16-bit products are added eight at a time, whatever the
    vector's length; `sparse_windows`: sparse strips may have windows (ek_sparse_window).
    """

    simd: str
    vl: int
    registers: int
    i8: ByteProduct
    f32_tiles: tuple[Tile, ...]
    i8_tiles: tuple[Tile, ...]
    columns: Columns
    prices: TilePrices
    nna_vectors: int
    lanes: bool = False
    masks_loads: bool = False
    multiplies_pairs: bool = False
    widens_eight: bool = False
    sparse_windows: bool = False

    @property
    def k_step(self) -> int:
        """The packed k of 8-bit kernels is a multiple of this."""
        return self.i8.group * (self.vl if self.i8 is ByteProduct.DOT4_SS else 1)

    def tiles(self, dtype: str) -> tuple[Tile, ...]:
        """The register tiles for products of `dtype` (f32, s8 or u8)."""
        return self.f32_tiles if dtype == "f32" else self.i8_tiles


def isa_names() -> list[str]:
    """Names of all instruction sets, as board profiles have them in `simd`."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@functools.cache
def isa_of(simd: str) -> Isa:
    """The facts of one instruction set. Raises ValueError if its file is missing or wrong."""
    try:
        return msgspec.convert({**_merged(simd), "simd": simd}, Isa, strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"instruction set '{simd}': {error}") from None


def _merged(simd: str) -> dict[str, Any]:
    path = FOLDER / f"{simd}.toml"
    if not path.is_file():
        known = ", ".join(isa_names())
        raise ValueError(f"expected an instruction set ({known}), found '{simd}'")
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    base = raw.pop("inherits", None)
    return _over(_merged(base), raw) if base else raw


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Values of `own` instead of those of `base`; of tables value by value, prices as a whole."""
    merged = dict(base)
    for key, value in own.items():
        known = merged.get(key)
        merged[key] = {**known, **value} if isinstance(known, dict) else value
    return merged

"""Instruction sets: one small TOML file each, simd/NAME.toml, matching device/kernels/simd/NAME.h.

Lowering, GEMM methods, tuner and tests read all properties of an instruction set from here. A file
may inherit from another one. A test checks the files against the headers.
"""

from __future__ import annotations

import enum
import functools
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgekit.kb.decoding import convert

FOLDER = Path(__file__).parent / "simd"
LANE_REGISTERS = 32  # vector registers of 64-bit ARM, which multiplies by a lane
BYTES = {"f32": 4, "s8": 1, "u8": 1, "f16": 2}  # per element of A or B

TileKind = Literal["normal", "transposed", "amx", "in_order"]


class ByteProduct(enum.Enum):
    """The kinds of 8-bit products; see device/kernels/gemm/i8_tile.h."""

    DOT4_US = "EK_I8_DOT4_US"
    DOT4_SS = "EK_I8_DOT4_SS"
    MMLA = "EK_I8_MMLA"
    PAIR16 = "EK_I8_PAIR16"
    FOUR16 = "EK_I8_FOUR16"
    WIDE16 = "EK_I8_WIDE16"
    MULL16 = "EK_I8_MULL16"
    MADOT = "EK_I8_MADOT"

    @property
    def group(self) -> int:
        """Consecutive values along k in a panel."""
        of_others = {ByteProduct.PAIR16: 2, ByteProduct.WIDE16: 1}
        of_others |= {ByteProduct.MMLA: 8, ByteProduct.MADOT: 8, ByteProduct.MULL16: 16}
        return of_others.get(self, 4)

    @property
    def order(self) -> list[int]:
        """The order of the values of a group in a panel."""
        return [0, 2, 1, 3] if self is ByteProduct.FOUR16 else list(range(self.group))

    @property
    def is_dot(self) -> bool:
        """True if one instruction multiplies and adds four or more products of bytes per lane."""
        return self in (ByteProduct.DOT4_US, ByteProduct.MADOT) or self.is_signed_dot

    @property
    def is_signed_dot(self) -> bool:
        """The same for signed bytes, as on 64-bit ARM."""
        return self in (ByteProduct.DOT4_SS, ByteProduct.MMLA)

    @property
    def reads_bytes(self) -> bool:
        """True if rows of x are read directly, without widening to 16 bits."""
        return self not in (ByteProduct.PAIR16, ByteProduct.FOUR16)

    @property
    def flips_unsigned(self) -> bool:
        """True if both factors are signed: u8 is read as x - 128; otherwise s8 as x + 128."""
        return self.is_signed_dot or self in (ByteProduct.MULL16, ByteProduct.MADOT)


class Tile(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Register tile: mr rows (pixels) x nv vectors of columns (output channels)."""

    mr: int
    nv: int


class Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Heights of the micro-kernels that are 1, 2, ... vectors wide.

    A board's library has all heights up to these, so it contains every tile of `Isa`.
    """

    f32: tuple[int, ...]
    i8: tuple[int, ...]
    f16: tuple[int, ...] = ()  # with twice as many lanes; up to 4, of exactly these heights
    i8_vectors: int = 0  # rows up to which byte tiles use vectors, above them AMX; 0: no AMX
    # Copies are faster than float panels read from distant rows.
    copies_f32: bool = False

    def of(self, dtype: str) -> tuple[int, ...]:
        """The heights for products of `dtype` (f32, f16, s8 or u8)."""
        if dtype == "f16":
            return self.f16
        return self.f32 if dtype == "f32" else self.i8

    def vector_rows(self, dtype: str) -> int:
        """The rows above which tiles use AMX; 0: none do."""
        return 0 if dtype == "f32" else self.i8_vectors


class TileCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The costs of the parts of a product, in sixteenths of a vector multiply-add.

    A line of a tile is the result of one value of the broadcast operand and a vector: a row of C,
    or a column if the tile is transposed. AMX tiles with more lines than a tile register count as
    two registers, and k as complete steps.
    """

    # Per k; for bytes per four of k
    product: int  # a vector multiply-add of one line
    wide: int  # minimum number of these per tile
    line: int  # loading and broadcasting one value of a line
    vector: int  # loading one vector of the other operand
    far: int = 0  # extra cost if its panel exceeds half of L1 and is read again
    late: int = 0  # a tile, of bytes a multiply-add in it, without registers to load ahead

    # An operand that was not packed in advance, per k or four of k
    group: int = 0  # grouping a vector of B along k (bytes), or packing it (floats in order)
    panel: int = 0  # bytes: the same, per four vectors of a panel
    crossing: int = 0  # bytes: a panel next to others, if rows are not complete cache lines
    passing: int = 0  # floats: a vector of B in place, the first times that it is read
    masked: int = 0  # floats: a vector of a panel of B in place that ends in a partial one
    packing: int = 0  # a row of A, in complete vectors
    crowded: int = 0  # floats: extra cost of a row of A, if rows share cache sets or exceed L2, in
    # a transposed tile, or in place in one of more rows than prefetchers follow

    # C, once for all k
    tile: int = 0  # a tile
    spilled: int = 0  # extra cost if sums and vectors of B take all registers
    segment: int = 0  # a line of a tile
    paged: int = 0  # extra cost if lines of C are complete pages apart
    torn: int = 0  # extra cost if two tiles write parts of a cache line of a C beyond L2
    stored: int = 0  # a vector
    partial: int = 0  # a line of C that ends in a partial vector
    element: int = 0  # an element stored across the rows of C
    start: int = 0  # the entire product


class KindCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The costs of each kind of tile for products of one type."""

    normal: TileCosts  # vectors along n
    transposed: TileCosts  # vectors along m, for few columns
    amx: TileCosts | None = None  # in tile registers
    in_order: TileCosts | None = None  # floats: f32_in_order.h, eight rows by a packed panel


class ProductCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The costs of products of floats and of bytes."""

    f32: KindCosts
    i8: KindCosts
    # Row tiles from which floats of a B beyond L1 are packed if its rows share cache sets, twice
    # that if not (`analytic_method`, points 4 and 5); 0: only large ones beyond L2
    pack_rows: int = 0
    # Whether packing strips of a B of floats beyond the last cache pays for few rows of A, too
    packs_all: bool = True
    # Most rows of A whose floats are packed if a B in place fills L1
    packed_rows: int = 0
    # Rows of A from which floats of both operands are packed if B is beyond L1; 0: never
    packs_both: int = 0


class Isa(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of one instruction set, whose header is device/kernels/simd/`simd`.h."""

    simd: str
    vl: int  # 32-bit lanes of a vector
    registers: int  # minimum vector registers of a core
    i8: ByteProduct  # the kind of 8-bit products
    f32_tiles: tuple[
        Tile, ...
    ]  # register tiles that do not spill, the one for large products first
    i8_tiles: tuple[Tile, ...]
    groups_tile: Tile  # for bytes with group scales: integer and float sums in registers
    columns: Columns  # the micro-kernels of a board's library
    costs: ProductCosts
    nna_vectors: int  # of output channels that the emulated NNA computes at once, for four points
    lanes: bool = False  # EK_LANES: products with one lane of a vector
    masks_loads: bool = False  # vf_load_masked: loads that skip lanes
    multiplies_pairs: bool = False  # EK_PAIRS: the sum of two 16-bit products in each lane
    widens_eight: bool = (
        False  # EK_QUANTIZED8: eight 16-bit products at once, for any vector length
    )
    # EK_LINES: requantization with floats (lowering/gemm/float_requant.py)
    requantizes_in_float: bool = False
    shares_rows: bool = (
        True  # two rows of a depthwise convolution at once, sums of both in registers
    )
    winograd: bool = False  # 3x3 convolutions may be computed by Winograd's transform
    sparse_windows: bool = False  # ek_sparse_window: sparse strips may have windows
    half: str | None = None  # the header for kernels of f16 tensors, on cores that compute in it
    half_feature: str = ""  # the /proc/cpuinfo feature of these cores
    i8_feature: str = ""  # which products of bytes need besides those of every bundle
    half_tiles: tuple[Tile, ...] = ()  # its register tiles, as f32_tiles

    @property
    def of_half(self) -> Isa:
        """The same core for kernels of f16 tensors, with twice as many lanes."""
        if self.half is None:
            raise ValueError(f"instruction set '{self.simd}' has no arithmetic in half precision")
        tiles = self.half_tiles
        return msgspec.structs.replace(self, simd=self.half, vl=2 * self.vl, f32_tiles=tiles)

    @property
    def row_registers(self) -> int:
        """The registers that hold rows of a float tile in place next to its sums; 0: no limit, as
        only products with one lane of a vector, on 64-bit ARM, keep values of rows there."""
        return self.registers if self.lanes and self.registers == LANE_REGISTERS else 0

    def rows_in_place(self, mr: int, nv: int) -> int:
        """The rows of a float tile in place, at most `mr`, that fit in registers with `nv` vectors
        of sums each, besides a vector of B."""
        return min(mr, (self.row_registers - 1) // (nv + 1)) if self.row_registers else mr

    @property
    def is_half(self) -> bool:
        """True for the result of `of_half`."""
        return self.simd == self.half

    @property
    def vector_bits(self) -> int:
        """Bits of a vector of floats."""
        return (16 if self.is_half else 32) * self.vl

    @property
    def k_step(self) -> int:
        """The packed k of 8-bit kernels is a multiple of this."""
        return 4 * self.vl if self.i8.is_signed_dot else self.i8.group

    def tiles(self, dtype: str) -> tuple[Tile, ...]:
        """The register tiles for products of `dtype` (f32, s8 or u8)."""
        return self.f32_tiles if dtype == "f32" else self.i8_tiles


def isa_names(folder: Path = FOLDER) -> list[str]:
    """Names of all instruction sets in `folder`, as used by board profiles in `simd`."""
    return sorted(path.stem for path in folder.glob("*.toml"))


@functools.cache
def isa_of(simd: str, folder: Path = FOLDER) -> Isa:
    """Loads the properties of one instruction set from its file in `folder`. Raises ValueError if
    that is missing or invalid."""
    try:
        return convert({**_load_merged(simd, folder), "simd": simd}, Isa)
    except msgspec.ValidationError as error:
        raise ValueError(f"instruction set '{simd}': {error}") from None


def costs_over(base: ProductCosts, own: dict[str, Any]) -> ProductCosts:
    """`base`, with the kinds of tiles replaced that `own`, the table of a file, has costs of.
    Raises ValueError if they are invalid."""
    try:
        return convert(_merge_over(msgspec.to_builtins(base), own), ProductCosts)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _load_merged(simd: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{simd}.toml"
    if not path.is_file():
        known = ", ".join(isa_names(folder))
        raise ValueError(f"expected an instruction set ({known}), found '{simd}'")
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    base = raw.pop("inherits", None)
    return _merge_over(_load_merged(base, folder), raw) if base else raw


def _merge_over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merges `own` over `base`: tables key by key, but costs are replaced entirely."""
    merged = dict(base)
    for key, value in own.items():
        known = merged.get(key)
        merged[key] = {**known, **value} if isinstance(known, dict) else value
    return merged

"""Builds libedgekit-kernels.so, the GEMM library of one board, independent of any model.

    python -m edgekit.host.compiler.toolchain.kernels [PATH]    builds for this machine, prints path

The board's rows of the knowledge base are written next to the library, as PATH with .table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from edgekit.device.runtime.arrays.sparse_library import STORED
from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.costs.methods import rule
from edgekit.host.compiler.costs.methods.tile_cost import (
    far_bytes,
    in_order_tile,
    kinds_of,
    own_rows_of_bytes,
    strip_rows,
    tile_costs_of,
)
from edgekit.host.compiler.toolchain.nna_units import nna_units
from edgekit.host.compiler.toolchain.zig import Toolchain, TranslationUnit, kernels_folder
from edgekit.kb.targets.board import BoardProfile, caches_of, load_board
from edgekit.kb.targets.isa import Columns, Tile

_OUTLIER_FILES = ("choose", "mark", "split", "merge", "int4", "outlier")
_API_FILES = ("session", "operands", "gemm", "sparse_table", "spmv", "outlier")


@dataclass(frozen=True)
class _Family:
    """The micro-kernels of one pair of operand types; `types` is the macro TYPES of the i8 files.

    `name` occurs in its symbols; its position in _FAMILIES is its index in ek_gemm_families.
    """

    name: str
    dtype: str
    source: str
    types: str | None = None


_FAMILIES = (
    _Family("f32", "f32", "f32"),
    _Family("s8", "s8", "i8", "1"),
    _Family("u8", "u8", "i8", "2"),
    _Family("s8u8", "u8", "i8", "3"),
)


def build_kernels(board: BoardProfile, cache: Path | None = None, c_api: bool = False) -> bytes:
    """Builds the library for `board`, with the functions that programs in C call if `c_api`;
    `cache` defaults to the user's cache folder.

    Raises BuildError if the compiler fails.
    """
    units = [*kernel_units(board), *(c_api_units(board) if c_api else ())]
    return Toolchain(board, (cache or cache_folder()) / "objects").build(units)


def build_tables(board: BoardProfile) -> tuple[bytes, bytes]:
    """Serializes the knowledge base rows for `board` in the library's formats: those of products,
    and of sparse matrices.

    Raises InputError if a table cannot be read.
    """
    from edgekit.host.compiler.tables.gemm import table_of
    from edgekit.host.compiler.tables.spmv import spmv_table_of
    from edgekit.host.compiler.toolchain.gemm_blob import table_blob

    products = table_blob(table_of(board), board.platform)
    return products, spmv_table_of(board).text().encode()


def write_kernels(path: Path, board: BoardProfile) -> None:
    """Writes the tables, then the library, so that its presence implies theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    products, sparse = build_tables(board)
    atomic_write(path.with_name(f"{path.name}.table"), products)
    atomic_write(path.with_name(f"{path.name}.spmv"), sparse)
    atomic_write(path, build_kernels(board))


def kernel_units(board: BoardProfile) -> list[TranslationUnit]:
    """All C files of the library, without `c_api_units`."""
    folder = kernels_folder()
    simd = ("EK_SIMD", f'"simd/{board.simd}.h"')
    units = [TranslationUnit("tables", tables(board)), default_unit(board)]
    for family in _FAMILIES:
        macros = (simd, *_macros_of(family, board.isa.columns))
        units += [
            TranslationUnit(
                f"{family.name}_{part}", folder / f"gemm/{family.source}_{part}.c", macros
            )
            for part in ("pack", "dot")
        ]
        most = board.isa.columns.i8_vectors if family.types else 0
        for tile in columns_of(board, family):
            units.append(_tile_unit(family, tile, most, macros))
    common = (path for path in sorted(folder.glob("gemm/*.c")) if _is_common(path))
    units += [TranslationUnit(path.stem, path, (simd,)) for path in common]
    units += nna_units(board)
    units += sparse_units(board)
    units += _outlier_units(board)
    units += half_units(board)
    units.append(features_unit(board))
    units.append(TranslationUnit("pool", folder / "runtime/thread_pool.c"))
    return units


def c_api_units(board: BoardProfile) -> list[TranslationUnit]:
    """The files behind the headers for programs in C."""
    of_half = (("EK_COMPUTES_HALF", "1"),) if board.computes_half else ()
    folder = kernels_folder() / "c_api"
    return [TranslationUnit(f"api_{name}", folder / f"{name}.c", of_half) for name in _API_FILES]


def half_units(board: BoardProfile) -> list[TranslationUnit]:
    """The product of f16 matrices, with a tile of each width; none for cores that do not compute in
    half precision. The rest of the library does not need the feature."""
    if not board.computes_half:
        return []
    isa, folder = board.isa.of_half, kernels_folder()
    extras = tuple({*board.extras} & {isa.half_feature})
    simd = ("EK_SIMD", f'"simd/{isa.simd}.h"')
    tiles = [Tile(mr, nv) for nv, mr in enumerate(isa.columns.f16, 1)]
    names = {tile: f"ek_gemm_f16_{tile.mr}x{tile.nv}" for tile in tiles}
    listed = " ".join(f"X({name},{tile.nv})" for tile, name in names.items())
    features = (
        ("ek_missing_feature", "ek_gemm_f16_missing"),
        *(("EK_FEATURES", f'"{isa.half_feature}"'), ("EK_VLEN_BITS", str(board.vlen_bits))),
    )
    return [
        *(_half_tile_unit(name, tile, simd, extras) for tile, name in names.items()),
        TranslationUnit(
            "half", folder / "product/half.c", (simd, ("TILES", listed)), extras=extras
        ),
        TranslationUnit("half_features", folder / "runtime/features.c", features, plain=True),
    ]


def _half_tile_unit(
    name: str, tile: Tile, simd: tuple[str, str], extras: tuple[str, ...]
) -> TranslationUnit:
    macros = (("NAME", name), simd, ("MR", str(tile.mr)), ("NV", str(tile.nv)))
    return TranslationUnit(name, kernels_folder() / "product/packed.c", macros, extras=extras)


def sparse_units(board: BoardProfile) -> list[TranslationUnit]:
    """The files that build and multiply sparse matrices, for one board."""
    folder = kernels_folder() / "sparse"
    simd = ("EK_SIMD", f'"simd/{board.simd}.h"')
    plain = ("rows", "build", "fill", "pieces", "stream")
    units = [TranslationUnit(f"sparse_{name}", folder / f"{name}.c") for name in plain]
    in_order = (("EK_IN_ORDER", "1"),) if board.in_order else ()
    units.append(TranslationUnit("sparse_dispatch", folder / "dispatch.c", (simd,)))
    for number, name in enumerate(STORED):
        for product in ("spmv", "spmm"):
            symbol = f"ek_{product}_{name}"
            macros = (("EK_STORED", str(number)), ("EK_NAME", symbol), simd, *in_order)
            if symbol != "ek_spmv_s8f":  # float vector times bytes: used by SpMM only
                units.append(TranslationUnit(symbol, folder / f"{product}.c", macros))
    return units


def _outlier_units(board: BoardProfile) -> list[TranslationUnit]:
    """The outlier kernels and their callers, for one board."""
    folder = kernels_folder() / "outlier"
    simd = ("EK_SIMD", f'"simd/{board.simd}.h"')
    return [
        TranslationUnit(f"outlier_{name}", folder / f"{name}.c", (simd,)) for name in _OUTLIER_FILES
    ]


def _macros_of(family: _Family, columns: Columns) -> Iterator[tuple[str, str]]:
    if family.types:
        yield "TYPES", family.types
        if columns.i8_vectors:
            yield "AMX_LEAST", str(columns.i8_vectors + 1)


def _is_common(path: Path) -> bool:
    """True for files other than micro-kernels that need no special macros."""
    return path.stem != "default" and path.stem.partition("_")[0] not in ("f32", "i8")


def features_unit(board: BoardProfile, extras: Sequence[str] = ()) -> TranslationUnit:
    """ek_missing_feature, compiled to run on any CPU of the architecture.

    `extras` are required features besides those of every bundle for `board`.
    """
    needed = dict.fromkeys((*board.features, *extras, board.isa.i8_feature))
    macros = (
        ("EK_FEATURES", f'"{",".join(filter(None, needed))}"'),
        ("EK_VLEN_BITS", str(board.vlen_bits)),
    )
    return TranslationUnit("features", kernels_folder() / "runtime/features.c", macros, plain=True)


def shadow_unit() -> TranslationUnit:
    """ek_shadow, in the library of a float model that repeats inferences."""
    return TranslationUnit("shadow", kernels_folder() / "runtime/shadow.c")


def default_unit(board: BoardProfile) -> TranslationUnit:
    """ek_gemm_default with a board's caches, tiles and costs, and the constants of the rule."""
    caches, columns = caches_of(board), board.isa.columns

    def listed(heights: tuple[int, ...]) -> str:
        return ",".join(f"{{{height},{nv}}}" for nv, height in enumerate(heights, 1))

    def costed(dtype: str) -> str:
        costs = (tile_costs_of(board, dtype, kind) for kind in kinds_of(board, dtype))
        return ",".join(f"{{{','.join(map(str, structs.astuple(each)))}}}" for each in costs)

    costs = board.costs or board.isa.costs
    of_half = (
        ("EK_HALF_LANES", str(board.isa.of_half.vl if board.computes_half else 1)),
        ("EK_HALF_TILES", listed(columns.f16 if board.computes_half else (1,))),
    )
    macros = (
        ("EK_L1_BYTES", str(caches.l1)),
        ("EK_L2_BYTES", str(caches.l2)),
        ("EK_L3_BYTES", str(caches.l3)),
        ("EK_VECTOR_LANES", str(board.isa.vl)),
        ("EK_F32_TILES", listed(columns.f32)),
        ("EK_I8_TILES", listed(columns.i8)),
        ("EK_I8_VECTORS", str(columns.i8_vectors)),
        ("EK_I8_STEP", str(board.isa.k_step)),
        ("EK_I8_OWN_ROWS", str(own_rows_of_bytes(board))),
        ("EK_F32_LANES", str(board.isa.row_registers)),
        ("EK_F32_COPIES", str(int(columns.copies_f32))),
        ("EK_F32_PACK_ROWS", str(costs.pack_rows)),
        ("EK_F32_PACKED_ROWS", str(costs.packed_rows)),
        ("EK_F32_PACKS_BOTH", str(costs.packs_both)),
        ("EK_F32_FAR_BYTES", str(far_bytes(board))),
        ("EK_F32_STRIP_ROWS", str(strip_rows(board))),
        ("EK_F32_LINE_TILE", str(int(board.in_order))),
        ("EK_F32_IN_ORDER", str(int(in_order_tile(board, "f32") is not None))),
        *of_half,
        ("EK_F32_COSTS", costed("f32")),
        ("EK_I8_COSTS", costed("s8")),
        *((f"RULE_{name}", str(n)) for name, n in vars(rule).items() if name.isupper()),
    )
    return TranslationUnit("default", kernels_folder() / "gemm/default.c", macros)


def columns_of(board: BoardProfile, family: _Family) -> tuple[Tile, ...]:
    """The tallest tile of each width in a family; its code covers all smaller heights too."""
    heights = board.isa.columns.of(family.dtype)
    return tuple(Tile(mr, nv) for nv, mr in enumerate(heights, 1))


def tables(board: BoardProfile) -> str:
    """The C file with the pointer tables of micro-kernels, as described in microkernels.h."""
    lines = ['#include "gemm/microkernels.h"', '#include "gemm/table.h"']
    lines += ["int ek_abi(void) {", "    return EK_ABI;", "}"]
    lines += ["const char *ek_kernels_platform(void) {", f'    return "{board.platform}";', "}"]
    for family in _FAMILIES:
        lines += _family_table(board, family)
    names = ", ".join(f"&{family.name}_family" for family in _FAMILIES)
    lines.append(f"const ek_gemm_family *const ek_gemm_families[EK_GEMM_FAMILIES] = {{{names}}};")
    return "\n".join(lines) + "\n"


def _family_table(board: BoardProfile, family: _Family) -> Iterator[str]:
    name, columns = family.name, columns_of(board, family)
    symbols = [_gemm_symbol(family, tile) for tile in columns]
    vl, height = board.isa.vl, max(tile.mr for tile in columns)
    shown = [f"{tile.mr}x{tile.nv * vl}" for tile in columns]
    shown += [f"1x{columns[-1].nv * vl}", f"{height}x1"]
    yield f"extern const ek_gemm_operands ek_gemm_{name};"
    yield from (f"extern const ek_gemm_column {symbol};" for symbol in symbols)
    pointers = ", ".join(f"&{symbol}" for symbol in symbols)
    yield f"static const ek_gemm_column *const {name}_columns[] = {{{pointers}}};"
    yield (
        f"static const ek_gemm_family {name}_family = "
        f'{{&ek_gemm_{name}, "{",".join(shown)}", {len(symbols)}, {name}_columns}};'
    )


def _tile_unit(
    family: _Family, tile: Tile, most: int, macros: tuple[tuple[str, str], ...]
) -> TranslationUnit:
    symbol, for_amx = _gemm_symbol(family, tile), 0 < most < tile.mr
    amx = (("AMX_MOST", str(tile.mr)),) if for_amx else ()
    mr = most if for_amx else tile.mr
    own = (("NAME", symbol), ("MR", str(mr)), ("NV", str(tile.nv)), *amx)
    return TranslationUnit(
        symbol, kernels_folder() / f"gemm/{family.source}_tiles.c", (*own, *macros)
    )


def _gemm_symbol(family: _Family, tile: Tile) -> str:
    return f"ek_gemm_{family.name}_{tile.mr}x{tile.nv}"


def main(arguments: list[str]) -> int:
    """Builds the library for this machine at the given path, or in the cache; prints the path."""
    from edgekit.host.errors import EdgekitError
    from edgekit.host.local_kernels import local_path

    path = Path(arguments[0]) if arguments else local_path()
    try:
        write_kernels(path, load_board("local"))
    except (EdgekitError, ValueError, OSError) as error:
        print(f"edgekit: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

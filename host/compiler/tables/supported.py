"""Drops table rows that a core cannot compute.

These use types, tiles or blocks that its kernels lack; they are reported by name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from edgekit.device.runtime.kernel_facts import DEPTHWISE_BLOCKS
from edgekit.host.compiler.costs.methods.operators import (
    BLOCKS_OF_K,
    ROW_OF_BYTES,
    OperatorMethod,
    sums_at_once,
)
from edgekit.host.compiler.costs.methods.winograd import has_winograd, register_tiles
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase, OperatorRow
from edgekit.kb.targets.board import BoardProfile, load_profile, profile_names
from edgekit.kb.targets.isa import BYTES, Isa, Tile

_ROWS_OF_DEPTHWISE = 2  # at most
_LONGEST = 80  # maximum characters of a reported row


def format_row(text: bytes) -> str:
    """The text of a row in its file, truncated if long."""
    row = text.decode(errors="replace")
    return row if len(row) <= _LONGEST else f"{row[:_LONGEST]}..."


def drop_unsupported_rows(table: KnowledgeBase, board: BoardProfile) -> KnowledgeBase:
    """Moves rows that no board of this platform can compute to `skipped`.

    All boards of the platform count, since a general profile of a core has fewer features than it.
    """
    odd: dict[GemmRow | OperatorRow, str] = {}
    known: list[GemmRow | OperatorRow] = [*table.rows, *table.operators]
    for row in known:
        own = table.platforms[row.key.platform] == board.platform
        if own and (why := why_impossible(row, board)):
            odd[row] = f"{_describe_row(row)}: {why}"
    alike = _boards_of(board.platform) if odd else ()
    odd = {row: why for row, why in odd.items() if all(why_impossible(row, b) for b in alike)}
    if not odd:
        return table
    return replace(
        table,
        skipped=(*table.skipped, *odd.values()),
        rows=tuple(row for row in table.rows if row not in odd),
        operators=tuple(row for row in table.operators if row not in odd),
    )


@functools.cache
def _boards_of(platform: str) -> tuple[BoardProfile, ...]:
    return tuple(b for b in map(load_profile, profile_names()) if b.platform == platform)


def why_impossible(row: GemmRow | OperatorRow, board: BoardProfile) -> str:
    """The missing requirement of a row, as expected and found; empty if there is none."""
    types = [dtype for dtype in BYTES if dtype != "f16" or board.computes_half]
    if row.key.dtype not in types:
        return f"expected {', '.join(types)}, which this core computes, found {row.key.dtype}"
    if row.method is None:
        return ""
    if isinstance(row, OperatorRow):
        assert isinstance(row.method, OperatorMethod)
        return _of_operator(row.method, board.isa)
    return _of_product(row, board.isa)


def _of_operator(how: OperatorMethod, isa: Isa) -> str:
    if how.kc is not None and how.kc not in BLOCKS_OF_K:
        return f"expected blocks of k of {_join_with_or(BLOCKS_OF_K)}, found {how.kc}"
    isa = isa.of_half if how.precision == "f16" else isa
    if how.family == "winograd" and not has_winograd(how.precision, isa):
        return f"expected a family of {how.precision} that this core has, found winograd"
    if how.mr is None or how.nr is None:
        return ""
    if how.family == "winograd":
        return _of_transform(how, isa)
    tiles = _tallest_tiles(how, isa)
    if any(how.mr <= tile.mr and how.nr == tile.nv for tile in tiles):
        return ""
    most = [f"{tile.mr} x {tile.nv}" for tile in tiles]
    return f"expected a tile of at most {_join_with_or(most)}, found {how.mr} x {how.nr}"


def _of_transform(how: OperatorMethod, isa: Isa) -> str:
    """Winograd's kernel halves the rows of its tiles twice, so it takes only its own."""
    tiles = [f"{t.mr} x {t.nv * isa.vl}" for t in register_tiles(how.precision, isa)]
    found = f"{how.mr} x {how.nr}"
    return "" if found in tiles else f"expected a tile of {_join_with_or(tiles)}, found {found}"


def _tallest_tiles(how: OperatorMethod, isa: Isa) -> list[Tile]:
    """The tallest tile of each width that the kernels of a family have, in columns."""
    is_float = how.precision not in ("s8", "u8")
    if how.family == "depthwise":
        columns = sums_at_once(isa, is_float)
        blocks = (1, DEPTHWISE_BLOCKS) if how.precision == "f32" and isa.lanes else (1,)
        return [Tile(_ROWS_OF_DEPTHWISE, n * columns) for n in blocks]
    heights = isa.columns.of("f32" if is_float else how.precision)
    tiles = [Tile(height, nv * isa.vl) for nv, height in enumerate(heights, 1)]
    if isa.lanes and not is_float and len(heights) < ROW_OF_BYTES.nv:
        tiles.append(Tile(ROW_OF_BYTES.mr, ROW_OF_BYTES.nv * isa.vl))
    return tiles


def _of_product(row: GemmRow, isa: Isa) -> str:
    """For products of the library. Those with a vector have separate kernels; for others the
    nearest tile is used, so only tiles beyond all of them are rejected."""
    how = row.method
    assert how is not None
    heights = isa.columns.of(row.key.dtype)
    lanes = isa.of_half.vl if row.key.dtype == "f16" else isa.vl
    lines, across = (how.nr, how.mr) if how.is_transposed(isa.vl) else (how.mr, how.nr)
    most = max(heights), len(heights) * lanes
    if how.is_with_vector or (lines <= most[0] and across <= most[1]):
        return ""
    return f"expected a tile of at most {most[0]} x {most[1]}, found {how.mr} x {how.nr}"


def _describe_row(row: GemmRow | OperatorRow) -> str:
    shape, key = row.shape, row.key
    sizes = f"{shape.m},{shape.k},{shape.n}"
    return f"{key.form or 'product'} {sizes} {key.dtype} x{key.threads}"


def _join_with_or(values: Iterable[object]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}" if most else last

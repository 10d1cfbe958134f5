"""Costs of image layouts on a board: from the user's table, else from edgekit's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.compiler.costs.layout_table import CHAIN, LayoutTable, read_layouts
from edgekit.host.compiler.tables.user_files import user_file
from edgekit.host.errors import InputError
from edgekit.kb.tables.paths import found_tables, shipped_folder
from edgekit.kb.targets.board import BoardProfile, load_profile, profile_names

_MUST_GAIN = 1.2  # penalty factor on optional kernels if the table is from another core
_FAMILIES = {"armv7l": "aarch64"}  # cores by the same designer: an A7 gains by the A53's table
_FROZEN = "x86_64"  # no penalty: AVX2 lost 2% of its gain by the factor
# Default kernels, which need no decision.
_USUAL = ("dense", "depthwise", "dense_row", "dense_rows", "dense_window", "dense_i8", CHAIN)


def layout_table_of(board: BoardProfile) -> LayoutTable | None:
    """Return the layout table for a board, or None if there is none.

    First choice is the board's platform, then the nearest it inherits from, the user's table before
    edgekit's. The fallback is edgekit's table for a board of the same family with matching vector
    support; its channels-first and sparse kernels are penalized, since relative costs of layouts
    differ between cores. Raises InputError for a table that cannot be read.
    """
    try:
        for path in _own_tables(board):
            return read_layouts(path)
        for path in _similar_board_tables(board):
            lent = read_layouts(path)
            return lent if board.arch == _FROZEN else _penalize_optional(lent)
    except DeviceInputError as error:
        raise InputError(str(error)) from None
    return None


def user_layout_table(board: BoardProfile) -> Path:
    """Path of the table that `edgekit lab tune cost --layouts` writes."""
    return user_file("layouts", board)


def _own_tables(board: BoardProfile) -> Iterator[Path]:
    for _, path in found_tables(board, user_layout_table(board).parent, shipped_folder("layouts")):
        yield path


def _similar_board_tables(board: BoardProfile) -> Iterator[Path]:
    others = [o for o in map(load_profile, profile_names()) if _is_like(o, board)]
    for other in sorted(others, key=lambda o: o.in_order != board.in_order):
        for _, path in found_tables(other, shipped_folder("layouts")):
            yield path


def _is_like(one: BoardProfile, other: BoardProfile) -> bool:
    arches = {_FAMILIES.get(board.arch, board.arch) for board in (one, other)}
    return len(arches) == 1 and (one.isa.vl > 1) == (other.isa.vl > 1)


def _penalize_optional(table: LayoutTable) -> LayoutTable:
    """Penalize optional kernels. That lost less than the original costs: on an A57 with the A72's
    table, it won 0.3% instead of losing 2.5% on a pruned hand detector, and no less on a pruned
    face detector."""
    return replace(
        table,
        lent=_MUST_GAIN,
        cases=tuple(
            case if case.kernel in _USUAL else replace(case, cost=_MUST_GAIN * case.cost)
            for case in table.cases
        ),
    )

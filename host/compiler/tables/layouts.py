"""What either layout of images costs on a board: the user's table, else the one of the kit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.compiler.tables.layout_table import CHAIN, LayoutTable, read_layouts
from edgekit.host.compiler.tables.user_files import user_file
from edgekit.host.errors import InputError
from edgekit.kb.tables.paths import found_tables, shipped_folder
from edgekit.kb.targets.board import BoardProfile, load_profile, profile_names

_MUST_GAIN = 1.2  # times the cost of other kernels, by a table that is another core's
_FAMILIES = {"armv7l": "aarch64"}  # cores of one maker: an A7 gains by the A53's table
_FROZEN = "x86_64"  # as it was: AVX2 lost 2 % of what it gains by the factor
# Kernels that need no decision.
_USUAL = ("dense", "depthwise", "dense_row", "dense_rows", "dense_window", "dense_codes", CHAIN)


def layout_table_of(board: BoardProfile) -> LayoutTable | None:
    """The table of a board's platform, the user's before the kit's; else of the nearest that it
    inherits from, else the kit's of a board of its family that has vectors as it has: with planes
    and sparse kernels dearer, since what layouts cost beside each other differs from core to core.
    None if there is none. Raises InputError for a table that cannot be read.
    """
    try:
        for path in _own_tables(board):
            return read_layouts(path)
        for path in _others(board):
            lent = read_layouts(path)
            return lent if board.arch == _FROZEN else _borrowed(lent)
    except DeviceInputError as error:
        raise InputError(str(error)) from None
    return None


def user_layout_table(board: BoardProfile) -> Path:
    """The file that `edgekit lab tune layouts` writes."""
    return user_file("layouts", board)


def _own_tables(board: BoardProfile) -> Iterator[Path]:
    for _, path in found_tables(board, user_layout_table(board).parent, shipped_folder("layouts")):
        yield path


def _others(board: BoardProfile) -> Iterator[Path]:
    others = [o for o in map(load_profile, profile_names()) if _is_like(o, board)]
    for other in sorted(others, key=lambda o: o.in_order != board.in_order):
        for _, path in found_tables(other, shipped_folder("layouts")):
            yield path


def _is_like(one: BoardProfile, other: BoardProfile) -> bool:
    arches = {_FAMILIES.get(board.arch, board.arch) for board in (one, other)}
    return len(arches) == 1 and (one.isa.vl > 1) == (other.isa.vl > 1)


def _borrowed(table: LayoutTable) -> LayoutTable:
    """Less was lost so than with costs as they are: on an A57, with the table of the A72, 0.3 % won
    for 2.5 % lost on a pruned hand detector, and no less won on a pruned face detector."""
    return replace(
        table,
        cases=tuple(
            case if case.kernel in _USUAL else replace(case, cost=_MUST_GAIN * case.cost)
            for case in table.cases
        ),
    )

"""What either layout of images costs on a board: the user's table, else the one of the kit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgekit.device.errors import InputError as DeviceInputError
from edgekit.host.errors import InputError
from edgekit.host.tables.user_files import user_file
from edgekit.kb.board import BoardProfile, load_profile, profile_names
from edgekit.kb.layout_table import LayoutTable, read_layouts
from edgekit.kb.places import found_tables, shipped_folder


def layout_table_of(board: BoardProfile) -> LayoutTable | None:
    """The table of a board's platform, the user's before the kit's; else of the nearest that it
    inherits from, else the kit's of the board that is most like it, if both have vectors: what
    layouts cost beside each other differs less between cores than what they cost. None if there is
    none. Raises InputError for a table that cannot be read.
    """
    for path in _tables(board):
        try:
            return read_layouts(path)
        except DeviceInputError as error:
            raise InputError(str(error)) from None
    return None


def user_layout_table(board: BoardProfile) -> Path:
    """The file that `edgekit tune layouts` writes."""
    return user_file("layouts", board)


def _tables(board: BoardProfile) -> Iterator[Path]:
    shipped = shipped_folder("layouts")
    for _, path in found_tables(board, user_layout_table(board).parent, shipped):
        yield path
    others = (o for o in map(load_profile, profile_names()) if (o.isa.vl > 1) == (board.isa.vl > 1))
    for other in sorted(others, key=lambda o: _unlike(o, board)):
        for _, path in found_tables(other, shipped):
            yield path


def _unlike(one: BoardProfile, other: BoardProfile) -> tuple[bool, bool, bool]:
    """What differs, the most telling first."""
    return (
        one.arch != other.arch,
        one.isa.vl != other.isa.vl,
        one.in_order != other.in_order,
    )

"""What either layout of images costs on a board: the user's table, else the one of the kit."""

from __future__ import annotations

from pathlib import Path

from edgekit.device.errors import InputError as DeviceInputError
from edgekit.host.errors import InputError
from edgekit.host.paths import data_folder
from edgekit.kb.board import BoardProfile, load_profile
from edgekit.kb.gemm_file import FOLDER, table_name
from edgekit.kb.layout_table import LayoutTable, read_layouts


def layout_table_of(board: BoardProfile) -> LayoutTable | None:
    """The user's table of a board, else the kit's, else the kit's of a board with equal vectors;
    None if there is none. Raises InputError for a table that cannot be read.
    """
    shipped = FOLDER.with_name("layouts")
    paths = [user_layout_table(board), shipped / table_name(board)]
    paths += [p for p in sorted(shipped.glob("*.json")) if _is_alike(load_profile(p.stem), board)]
    for path in paths:
        if path.exists():
            try:
                return read_layouts(path)
            except DeviceInputError as error:
                raise InputError(str(error)) from None
    return None


def _is_alike(one: BoardProfile, other: BoardProfile) -> bool:
    return one.arch == other.arch and one.isa.vl == other.isa.vl


def user_layout_table(board: BoardProfile) -> Path:
    """Where `edgekit tune layouts` writes."""
    return data_folder() / "layouts" / table_name(board)

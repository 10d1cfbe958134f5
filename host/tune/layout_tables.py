"""What either layout of images costs on a board: the user's table, else the one of the kit."""

from __future__ import annotations

from pathlib import Path

from edgekit.device.errors import InputError as DeviceInputError
from edgekit.host.errors import InputError
from edgekit.host.paths import data_folder
from edgekit.kb.board import BoardProfile
from edgekit.kb.gemm_file import FOLDER, table_name
from edgekit.kb.layout_table import LayoutTable, read_layouts


def layout_table_of(board: BoardProfile) -> LayoutTable | None:
    """The user's table of a board, else the kit's; None if it has none.

    Raises InputError for a table that cannot be read.
    """
    for path in (user_layout_table(board), FOLDER.with_name("layouts") / table_name(board)):
        if path.exists():
            try:
                return read_layouts(path)
            except DeviceInputError as error:
                raise InputError(str(error)) from None
    return None


def user_layout_table(board: BoardProfile) -> Path:
    """Where `edgekit tune layouts` writes."""
    return data_folder() / "layouts" / table_name(board)

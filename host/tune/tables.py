"""The GEMM tables of this host: what the user built, over what the kit ships."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.files import write_whole
from edgekit.host.paths import data_folder
from edgekit.host.tune.history import History
from edgekit.host.tune.products import Product
from edgekit.kb.board import BoardProfile
from edgekit.kb.build import build_table
from edgekit.kb.features import Packed
from edgekit.kb.gemm_file import FOLDER, KnowledgeBaseError, load_table, table_name, table_text
from edgekit.kb.gemm_table import KnowledgeBase
from edgekit.kb.learn import Regret, learn_sequences, regret_of
from edgekit.kb.method import Method


def user_table(board: BoardProfile) -> Path:
    """Where `edgekit kb build` writes the table of a board."""
    return data_folder() / "gemm" / table_name(board)


def shipped_table(board: BoardProfile) -> Path:
    """Where the kit's own table of a board is, if there is one."""
    return FOLDER / table_name(board)


def kit_table(board: BoardProfile) -> KnowledgeBase | None:
    """The kit's own table of a board, if there is one: new rows come under its sequences, whatever
    state the user's table is in. Raises InputError for one that cannot be read."""
    path = shipped_table(board)
    return read_table(path) if path.exists() else None


def table_of(board: BoardProfile) -> KnowledgeBase:
    """The table that is used for a board. Raises InputError for one that cannot be read."""
    try:
        return KnowledgeBase.for_board(board, user_table(board).parent)
    except KnowledgeBaseError as error:
        raise InputError(str(error)) from None


def read_table(path: Path) -> KnowledgeBase:
    """The table in a file. Raises InputError for one that cannot be read."""
    try:
        return load_table(path)
    except KnowledgeBaseError as error:
        raise InputError(str(error)) from None


def methods_of_rows(
    table: KnowledgeBase, platform: str, dtype: str | None, threads: int, packed: Packed | None
) -> dict[Product, Method]:
    """What the rows of a platform claim, cut to the products they were measured on; of one dtype
    and `packed`, if they are named."""
    found: dict[Product, Method] = {}
    for row in table.rows:
        key = row.key
        wanted = (dtype or key.dtype, threads, packed or key.packed)
        same = (key.dtype, key.threads, key.packed) == wanted
        if row.method and same and table.platforms[key.platform] == platform:
            product = Product(row.shape, key.dtype, key.threads, key.packed)
            found[product] = row.method.cut(row.shape)
    return found


@dataclass(frozen=True)
class Built:
    """A table made from the history; `skipped` measurements cannot be true."""

    table: KnowledgeBase
    measurements: int
    skipped: int
    regret: Regret


def build_for(board: BoardProfile, path: Path, alone: bool) -> Built:
    """Builds the table of a board and writes it to `path`; raises InputError, OSError.

    Products that were not measured keep the rows of the kit's own table, unless `alone`; and with
    them its sequences, under which these rows were built. Only a table of its own learns others.
    """
    with History() as history:
        read = history.read(board.platform)
    base = None if alone else kit_table(board)
    if not read.measurements:
        raise InputError(
            f"expected measurements of {board.platform} in the history, found none; "
            f"make some: edgekit tune gemm --board {board.name}"
        )
    if base is None:
        sequences, regret = learn_sequences(read.measurements, board)
    else:
        sequences, regret = base.sequences, regret_of(base.sequences, read.measurements, board)
    table = build_table(read.measurements, (board.platform,), sequences, base, board)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table_text(table).encode())
    return Built(table, len(read.measurements), read.skipped, regret)

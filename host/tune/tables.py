"""GEMM tables made of the history, and what their rows claim."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.files import write_whole
from edgekit.host.tables.gemm import kit_table
from edgekit.host.tune.history import History
from edgekit.host.tune.products import Product
from edgekit.kb.board import BoardProfile
from edgekit.kb.build import build_table
from edgekit.kb.features import Packed
from edgekit.kb.gemm_file import table_text
from edgekit.kb.gemm_table import KnowledgeBase
from edgekit.kb.learn import Regret, learn_sequences, regret_of
from edgekit.kb.method import Method


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
    """A table made from the history, from so many measurements of products and of operators;
    `skipped` ones cannot be true."""

    table: KnowledgeBase
    measurements: int
    operators: int
    skipped: int
    regret: Regret


def build_for(board: BoardProfile, path: Path, alone: bool) -> Built:
    """Builds the table of a board and writes it to `path`; raises InputError, OSError.

    Products that were not measured keep the rows of the kit's own table, unless `alone`; and with
    them its sequences, under which these rows were built. Only a table of its own learns others.
    """
    with History() as history:
        read, operators = history.read(board.platform), history.read_operators(board.platform)
    base = None if alone else kit_table(board)
    if not (read.measurements or operators.measurements):
        raise InputError(
            f"expected measurements of {board.platform} in the history, found none; "
            f"make some: edgekit tune gemm --board {board.name}"
        )
    if base is None:
        sequences, regret = learn_sequences(read.measurements, board)
    else:
        sequences, regret = base.sequences, regret_of(base.sequences, read.measurements, board)
    table = build_table(
        read.measurements, (board.platform,), sequences, base, board, operators.measurements
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table_text(table).encode())
    skipped = read.skipped + operators.skipped
    return Built(table, len(read.measurements), len(operators.measurements), skipped, regret)

"""Builds GEMM tables from the history, and extracts the methods of their rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.files import atomic_write
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm import kit_table, table_of
from edgekit.host.compiler.tables.gemm_file import table_text
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.tables.supported import drop_unsupported_rows
from edgekit.host.errors import InputError
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.build import build_table
from edgekit.host.lab.tune.comparable import comparable
from edgekit.host.lab.tune.compare import MethodChange, changed_operators
from edgekit.host.lab.tune.field_calls import FieldCalls, field_calls
from edgekit.host.lab.tune.field_profiles import FieldHistory, field_history
from edgekit.host.lab.tune.learn import Regret, learn_sequences, regret_of
from edgekit.host.lab.tune.previous import keep_copy, read_previous, unexplained_rows
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.kb.features import Packed
from edgekit.kb.targets.board import BoardProfile

_LOG = logging.getLogger(__name__)


def methods_of_rows(
    table: KnowledgeBase, platform: str, dtype: str | None, threads: int, packed: Packed | None
) -> dict[MatrixProduct, Method]:
    """The methods of a platform's rows, clipped to the products they were measured on; optionally
    for one dtype and `packed`."""
    found: dict[MatrixProduct, Method] = {}
    for row in table.rows:
        key = row.key
        wanted = (dtype or key.dtype, threads, packed or key.packed)
        same = (key.dtype, key.threads, key.packed) == wanted
        if row.method and same and table.platforms[key.platform] == platform:
            product = MatrixProduct(row.shape, key.dtype, key.threads, key.packed)
            found[product] = row.method.cut(row.shape)
    return found


@dataclass(frozen=True)
class Built:
    """A table built from the history, and the numbers of product and operator measurements used;
    `skipped` ones had impossible values, `outdated` ones compare with another default. `kept`: rows
    of products and of operators that are the kit's own. `field`, `calls`: contribution of boards in
    the field, by models and by programs; `changes`: operator rows that differ from the previous
    table. Not `written`: there are profiles, but no evidence in them against the current table.
    `dropped`: rows of the file's previous table that neither the history nor the kit's table has;
    `previous` is then a copy of that table."""

    table: KnowledgeBase
    measurements: int
    operators: int
    skipped: int
    regret: Regret
    field: FieldHistory
    calls: FieldCalls
    changes: tuple[MethodChange, ...]
    written: bool = True
    kept: tuple[int, int] = (0, 0)
    dropped: int = 0
    previous: Path | None = None
    outdated: int = 0


def build_for(board: BoardProfile, path: Path, alone: bool, learn: bool = False) -> Built:
    """Builds the table of a board and writes it to `path`. Raises InputError if nothing is known
    about the board, and OSError.

    Unless `alone`, unmeasured products keep the rows of edgekit's own table. The table keeps its
    sequences, under which these rows were built, unless it is `alone` or shall `learn` its own.
    """
    with History() as history:
        read, operators = history.read(board.platform), history.read_operators(board.platform)
    field, calls = field_history(board.platform), field_calls(board)
    products = comparable(read.measurements, board)
    outdated = len(read.measurements) - len(products)
    of_products = [*products, *calls.added_to(products)]
    of_operators = [*operators.measurements, *field.measurements]
    base = None if alone else kit_table(board)
    skipped = read.skipped + operators.skipped
    before = _used_until_now(board)
    if not (of_products or of_operators):
        if before is None or not (field.releases or field.left_out or calls.boards):
            found = f"{outdated} that compare with another default" if outdated else "none"
            raise InputError(
                f"expected measurements of {board.platform} in the history, found {found}; "
                f"measure first: edgekit lab tune gemm --board {board.name}, or tune model"
            )
        regret = regret_of(before.sequences, (), board)
        return Built(
            before, 0, 0, skipped, regret, field, calls, (), written=False, outdated=outdated
        )
    if base is None or learn:
        sequences, regret = learn_sequences(of_products, board)
    else:
        sequences, regret = base.sequences, regret_of(base.sequences, of_products, board)
    made = build_table(of_products, (board.platform,), sequences, base, board, of_operators)
    table = drop_unsupported_rows(made, board)  # the history may name kernels that no longer exist
    old, others = read_previous(path), [table, base] if base else [table]
    dropped = unexplained_rows(old, others, of_products, of_operators) if old else 0
    previous = keep_copy(path) if dropped else None
    if previous:
        _LOG.warning(
            "%s: dropped %d rows that no measurement in the history explains; the table with them "
            "is now %s",
            path,
            dropped,
            previous,
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, table_text(table).encode())
    return Built(
        table,
        len(of_products),
        len(of_operators),
        skipped,
        regret,
        field,
        calls,
        changed_operators(before, table, of_operators) if before else (),
        kept=_count_kept(base, table),
        dropped=dropped,
        previous=previous,
        outdated=outdated,
    )


def _count_kept(base: KnowledgeBase | None, table: KnowledgeBase) -> tuple[int, int]:
    """Rows of products and of operators that were in `base` already."""
    if base is None:
        return 0, 0
    return (
        len(set(base.rows).intersection(table.rows)),
        len(set(base.operators).intersection(table.operators)),
    )


def _used_until_now(board: BoardProfile) -> KnowledgeBase | None:
    """The current table; None if it is damaged, which rebuilding fixes."""
    try:
        return table_of(board)
    except InputError:
        return None

"""Rows of a table that building it again would lose: added by hand, or measured elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edgekit.host.common.files import atomic_write, read_file
from edgekit.host.compiler.tables.gemm_file import KnowledgeBaseError, load_table
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase, OperatorRow
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.history.operator_history import OperatorMeasurement, operator_key
from edgekit.kb.features import key_of, packed_of

_SUFFIX = ".before"


def unexplained_rows(
    old: KnowledgeBase,
    others: Iterable[KnowledgeBase],
    products: Iterable[Measurement],
    operators: Iterable[OperatorMeasurement],
) -> int:
    """The number of rows with a method in `old` that none of `others` has, and whose keys have no
    measurement."""
    measured = {
        key_of(m.shape, old.platforms.index(m.platform), old.sequences, m.dtype, m.threads, packed)
        for m in products
        if m.platform in old.platforms
        for packed in (packed_of(m.packed),)
    }
    measured |= {
        operator_key(m, old.platforms, old.for_operators)
        for m in operators
        if m.platform in old.platforms
    }
    known = {_identity(row) for table in others for row in _rows_of(table)}
    return sum(
        bool(row.method) and row.key not in measured and _identity(row) not in known
        for row in _rows_of(old)
    )


def read_previous(path: Path) -> KnowledgeBase | None:
    """The table at `path`; None if there is none, or it is damaged, which building it again
    mends."""
    try:
        return load_table(path)
    except KnowledgeBaseError:
        return None


def keep_copy(path: Path) -> Path:
    """Copies a table to a file next to it, and returns that. Raises OSError."""
    copy = path.with_name(path.name + _SUFFIX)
    atomic_write(copy, read_file(path))
    return copy


def _rows_of(table: KnowledgeBase) -> tuple[GemmRow | OperatorRow, ...]:
    return (*table.rows, *table.operators)


def _identity(row: GemmRow | OperatorRow) -> tuple[object, ...]:
    key = row.key
    return row.shape, key.dtype, key.threads, key.packed, key.form, row.method

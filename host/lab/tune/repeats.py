"""Rows of a GEMM table that say nothing: they repeat the analytic rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.kb.features import GemmKey, GemmShape
from edgekit.kb.tables.gemm_table import KnowledgeBase, Row
from edgekit.kb.tables.method import Method

_DEFAULT = Method(1, 1, 1, pack_a=False, pack_b=False, mr=1, nr=1)  # stands for the analytic one


def without_repeats(
    table: KnowledgeBase, shapes_of: Mapping[GemmKey, Sequence[GemmShape]]
) -> KnowledgeBase:
    """The table without rows of the keys `shapes_of` that only say what look-ups say without them.

    A row without a method stays where a neighbor's would be taken for its product otherwise, or
    for one of those named beside its key.
    """
    rows = [row for row in table.rows if row.method or row.key not in shapes_of]
    small = table.with_rows(rows)
    for row in table.rows:
        if row.method is None and row.key in shapes_of:
            shapes = (row.shape, *shapes_of[row.key])
            if not all(_is_analytic(small, row, shape) for shape in shapes):
                rows.append(row)
    return table.with_rows(rows)


def _is_analytic(table: KnowledgeBase, row: Row, shape: GemmShape) -> bool:
    """Whether no other row's method answers for a product. Without a board, no tile is known to be
    transposed: a row stays rather than goes."""
    key, platform = row.key, table.platforms[row.key.platform]
    found = table.lookup(platform, shape, _DEFAULT, key.dtype, key.threads, key.packed)
    return found.method is _DEFAULT

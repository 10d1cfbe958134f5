"""Removes redundant rows of a GEMM table: those that repeat the analytic rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.kb.features import GemmKey, GemmShape
from edgekit.kb.tables.gemm_table import KnowledgeBase, Row
from edgekit.kb.tables.method import Method

_DEFAULT = Method(1, 1, 1, pack_a=False, pack_b=False, mr=1, nr=1)  # placeholder: analytic rule


def without_repeats(
    table: KnowledgeBase, shapes_of: Mapping[GemmKey, Sequence[GemmShape]]
) -> KnowledgeBase:
    """The table without rows of the keys `shapes_of` that do not change any lookup.

    A row without a method is kept if otherwise a neighbor's method would be used for its product
    or for one of the products listed for its key.
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
    """Whether no row's method applies to a product. Without a board, no tile is known to be
    transposed, which errs on the side of keeping a row."""
    key, platform = row.key, table.platforms[row.key.platform]
    found = table.lookup(platform, shape, _DEFAULT, key.dtype, key.threads, key.packed)
    return found.method is _DEFAULT

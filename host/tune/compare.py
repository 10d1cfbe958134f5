"""What differs between two GEMM tables."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.kb.gemm_table import KnowledgeBase, Row


@dataclass(frozen=True)
class Difference:
    """Rows of only one table, and pairs whose method differs; `same` counts all others."""

    sequences_differ: bool
    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    changed: tuple[tuple[Row, Row], ...]
    same: int


def compare_tables(old: KnowledgeBase, new: KnowledgeBase) -> Difference:
    """Rows are the same ones by platform, dtype, threads and the product they were measured on."""
    before, after = _by_product(old), _by_product(new)
    both = sorted(before.keys() & after.keys())
    changed = [(before[k], after[k]) for k in both if before[k].method != after[k].method]
    return Difference(
        sequences_differ=old.sequences != new.sequences,
        added=tuple(after[k] for k in sorted(after.keys() - before.keys())),
        removed=tuple(before[k] for k in sorted(before.keys() - after.keys())),
        changed=tuple(changed),
        same=len(both) - len(changed),
    )


def _by_product(table: KnowledgeBase) -> dict[tuple[str, str, int, str, int, int, int], Row]:
    return {
        (
            table.platforms[row.key.platform],
            row.key.dtype,
            row.key.threads,
            row.key.packed,
            row.shape.m,
            row.shape.k,
            row.shape.n,
        ): row
        for row in table.rows
    }

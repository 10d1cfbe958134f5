"""Compares two tables and reports the measurements behind the differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from edgekit.host.compiler.costs.methods.operators import OperatorMethod
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase, OperatorRow
from edgekit.host.lab.history.operator_history import OperatorMeasurement, operator_key
from edgekit.kb.features import GemmKey

AnyRow = GemmRow | OperatorRow


@dataclass(frozen=True)
class TableDifference:
    """Rows found in only one table, of products and of operators, and pairs whose method differs;
    `same` counts the others."""

    sequences_differ: bool
    added: tuple[AnyRow, ...]
    removed: tuple[AnyRow, ...]
    changed: tuple[tuple[AnyRow, AnyRow], ...]
    same: int


def compare_tables(old: KnowledgeBase, new: KnowledgeBase) -> TableDifference:
    """Compares tables; rows are matched by form, platform, dtype, threads and the product they
    were measured on."""
    before, after = _by_product(old), _by_product(new)
    both = sorted(before.keys() & after.keys())
    changed = [(before[k], after[k]) for k in both if before[k].method != after[k].method]
    return TableDifference(
        sequences_differ=old.sequences != new.sequences,
        added=tuple(after[k] for k in sorted(after.keys() - before.keys())),
        removed=tuple(before[k] for k in sorted(before.keys() - after.keys())),
        changed=tuple(changed),
        same=len(both) - len(changed),
    )


def _by_product(table: KnowledgeBase) -> dict[tuple[str | int, ...], AnyRow]:
    rows: tuple[AnyRow, ...] = (*table.rows, *table.operators)
    return {
        (
            row.key.form,
            table.platforms[row.key.platform],
            row.key.dtype,
            row.key.threads,
            row.key.packed,
            row.shape.m,
            row.shape.k,
            row.shape.n,
        ): row
        for row in rows
    }


@dataclass(frozen=True)
class MethodChange:
    """An operator row that is new or has a different method, and why. A method of None means no
    row: the analytic rule applies."""

    row: OperatorRow
    before: OperatorMethod | None
    after: OperatorMethod | None
    why: str


def changed_operators(
    before: KnowledgeBase, after: KnowledgeBase, history: Sequence[OperatorMeasurement]
) -> tuple[MethodChange, ...]:
    """Operator rows whose method changed, by key; none if the meaning of keys changed."""
    if before.for_operators != after.for_operators or before.platforms != after.platforms:
        return ()
    old, new = ({row.key: row for row in table.operators} for table in (before, after))
    measured: dict[GemmKey, list[OperatorMeasurement]] = defaultdict(list)
    for m in history:
        if m.platform in after.platforms:
            measured[operator_key(m, after.platforms, after.for_operators)].append(m)
    found = []
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        row = now or was
        assert row is not None
        methods = was.method if was else None, now.method if now else None
        if methods[0] != methods[1]:
            found.append(MethodChange(row, *methods, _explain_change(methods, measured[key])))
    return tuple(found)


def _explain_change(
    methods: tuple[OperatorMethod | None, ...], history: Sequence[OperatorMeasurement]
) -> str:
    """The measured costs of both methods, as multiples of the cost without a row."""
    parts = []
    for word, method in zip(("the old", "the new"), methods, strict=True):
        by_source: dict[str, list[float]] = defaultdict(list)
        for m in history:
            if m.method == method:
                by_source[m.source].append(m.ratio)
        parts += [
            f"{word} takes {geometric_mean(ratios):.2f} times as long as without a row ({source})"
            for source, ratios in sorted(by_source.items())
        ]
    return ", ".join(parts) or "the history has no measurement of the old method"

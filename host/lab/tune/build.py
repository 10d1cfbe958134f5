"""Builds a table from the history: for each key, the method with the best robust cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase, OperatorRow
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.history.operator_history import (
    OperatorMeasurement,
    operator_key,
    operator_rows,
    without_operator_repeats,
)
from edgekit.host.lab.tune.method_stats import MeasurementKind, by_kind
from edgekit.kb.features import GemmKey, GemmShape, Sequences, key_of, packed_of
from edgekit.kb.targets.board import BoardProfile

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


def _is_analytic(table: KnowledgeBase, row: GemmRow, shape: GemmShape) -> bool:
    """Whether no row's method applies to a product. Without a board, no tile is known to be
    transposed, which errs on the side of keeping a row."""
    key, platform = row.key, table.platforms[row.key.platform]
    found = table.lookup(platform, shape, _DEFAULT, key.dtype, key.threads, key.packed)
    return found.method is _DEFAULT


def build_table(
    history: Iterable[Measurement],
    platforms: Sequence[str] = (),
    sequences: Sequences | None = None,
    base: KnowledgeBase | None = None,
    board: BoardProfile | None = None,
    operators: Sequence[OperatorMeasurement] = (),
) -> KnowledgeBase:
    """Builds a table from the history of products and that of operators (`operator_rows`).
    `platforms` are the ones known before, which keep their index; `sequences` are for products,
    while operators keep those of `base`.

    A method's cost is the median of its ratios to the default of the same run, over all products
    of a key, each product counting once. Instruction counts are ignored where there are times, and
    so are measurements by older kits. Rows of `base` are kept for keys without history; new rows
    that only repeat the analytic rule are dropped. Given the `board` that was measured, methods
    are adapted to other products (`MethodStats`). The result depends on the set of product
    measurements, not on their order.
    """
    used = sequences or (base.sequences if base else Sequences())
    stats = by_kind(history, board)
    known = [*(base.platforms if base else ())]
    for name in (*platforms, *sorted({kind.platform for kind in stats})):
        if name not in known:
            known.append(name)
    rows = _rows_of(base, used) if base else {}
    shapes_of: dict[GemmKey, list[GemmShape]] = {}
    of_base = frozenset(rows)
    for kind in sorted(stats, key=lambda k: k.age):
        found = stats[kind]
        for key, shapes in keys_of(kind, found.products, used, known.index(kind.platform)).items():
            rows[key] = found.row(key, shapes)
            if key not in of_base:
                shapes_of.setdefault(key, []).extend(shapes)
    keys = base.for_operators if base else used
    table = KnowledgeBase(
        tuple(known),
        used,
        operators=_operators_of(base, keys, known, operators),
        operator_sequences=None if keys == used else keys,
    ).with_rows(rows.values())
    return without_repeats(table, shapes_of)


def keys_of(
    kind: MeasurementKind, shapes: Iterable[GemmShape], sequences: Sequences, platform: int
) -> dict[GemmKey, list[GemmShape]]:
    """Groups the products of one kind by their keys."""
    groups: dict[GemmKey, list[GemmShape]] = defaultdict(list)
    packed = packed_of(kind.packed)
    for shape in shapes:
        groups[key_of(shape, platform, sequences, kind.dtype, kind.threads, packed)].append(shape)
    return groups


def _operators_of(
    base: KnowledgeBase | None,
    used: Sequences,
    platforms: Sequence[str],
    history: Sequence[OperatorMeasurement],
) -> tuple[OperatorRow, ...]:
    """The operator rows: from the history, and from `base` for keys without history."""
    rows: dict[GemmKey, OperatorRow] = {}
    old = base.operators if base else ()
    for row in sorted(old, key=lambda r: (r.ratio is None, r.ratio or 0.0, r.key)):
        rows.setdefault(row.key, row)
    made = operator_rows(history, platforms, used)
    rows.update((row.key, row) for row in made)
    shapes: dict[GemmKey, set[GemmShape]] = defaultdict(set)
    for m in history:
        if m.platform in platforms:
            shapes[operator_key(m, platforms, used)].add(m.shape)
    return without_operator_repeats(tuple(rows.values()), shapes)


def _key_under(used: Sequences, old: GemmKey, shape: GemmShape) -> GemmKey:
    """The row's key under different sequences."""
    return key_of(shape, old.platform, used, old.dtype, old.threads, old.packed, old.form)


def _rows_of(base: KnowledgeBase, used: Sequences) -> dict[GemmKey, GemmRow]:
    """The table's rows under different sequences; of rows that collide, the best ratio is kept."""
    rows: dict[GemmKey, GemmRow] = {}
    for row in sorted(base.rows, key=lambda r: (r.ratio is None, r.ratio or 0.0, r.key)):
        key = _key_under(used, row.key, row.shape)
        rows.setdefault(key, replace(row, key=key))
    return rows

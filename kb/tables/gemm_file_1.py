"""The first form of a GEMM table, which is read but not written any more: users have such files."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgekit.kb.features import GemmKey, GemmShape, Packed, Sequences
from edgekit.kb.tables.gemm_table import Feature, KnowledgeBase, Row
from edgekit.kb.tables.method import Method
from edgekit.kb.tables.repeats import without_repeats
from edgekit.kb.tables.supported import told_row

SCHEMA = "edgekit.kb.gemm/1"


class _Sequences(msgspec.Struct, forbid_unknown_fields=True):
    m: list[int]
    k: list[int]
    n: list[int]
    scale: list[int]
    tie: Literal["low", "high"]


class _Key(msgspec.Struct, forbid_unknown_fields=True):
    platform: int
    m: int
    k: int
    n: int
    scale: int
    dtype: str
    threads: int
    packed: Packed


class _Method(msgspec.Struct, forbid_unknown_fields=True):
    mc: int
    kc: int
    nc: int
    pack_a: bool
    pack_b: bool
    mr: int
    nr: int
    split: Literal["m", "n"]


class _Shape(msgspec.Struct, forbid_unknown_fields=True):
    m: int
    k: int
    n: int


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    key: _Key
    method: _Method | None
    shape: _Shape
    source: str
    history_rows: int
    ratio: float | None
    gflops: float | None
    relaxes: bool
    cpu: str = ""
    reach: int | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    platforms: list[str]
    sequences: _Sequences
    priority: list[Literal["scale", "m", "n", "k"]]
    rows: list[msgspec.Raw]


def table_of(data: bytes) -> KnowledgeBase:
    """The table in a file of this form, without the rows that only repeat the analytic rule.

    Raises ValueError for one that cannot be read; rows that mean nothing are in `skipped`.
    """
    file = msgspec.json.decode(data, type=_File)
    rows, skipped = [], []
    for raw in file.rows:
        try:
            rows.append(_row(raw, len(file.platforms)))
        except (TypeError, ValueError) as error:
            skipped.append(f"{told_row(bytes(raw))}: {error}")
    priority: tuple[Feature, ...] = tuple(file.priority)
    given = file.sequences
    sequences = Sequences(
        tuple(given.m), tuple(given.k), tuple(given.n), tuple(given.scale), given.tie
    )
    table = KnowledgeBase(tuple(file.platforms), sequences, priority, tuple(rows), tuple(skipped))
    return without_repeats(table, {row.key: () for row in rows})


def _row(text: msgspec.Raw, platforms: int) -> Row:
    raw = msgspec.json.decode(text, type=_Row)
    if not 0 <= raw.key.platform < platforms:
        raise ValueError(f"unknown platform {raw.key.platform}")
    if raw.reach is not None and not 1 <= raw.reach < 1 << 31:
        raise ValueError(f"reach {raw.reach}")
    return Row(
        GemmKey(**msgspec.structs.asdict(raw.key)),
        None if raw.method is None else Method(**msgspec.structs.asdict(raw.method)),
        GemmShape(**msgspec.structs.asdict(raw.shape)),
        raw.source,
        raw.history_rows,
        raw.ratio,
        raw.gflops,
        raw.relaxes,
        raw.cpu,
        raw.reach,
    )

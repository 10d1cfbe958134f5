"""The table as text: kb/gemm/<platform>.json, reviewed in git and byte-identical when rebuilt."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgekit.kb.board import BoardProfile
from edgekit.kb.features import GemmKey, GemmShape, Packed, Sequences
from edgekit.kb.gemm_table import Feature, KnowledgeBase, Row
from edgekit.kb.method import Method
from edgekit.kb.places import found_tables, shipped_folder

SCHEMA = "edgekit.kb.gemm/1"


class KnowledgeBaseError(ValueError):
    """A table that cannot be read; the text is one line with file, expected and found."""


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


def board_table(board: BoardProfile, *folders: Path) -> KnowledgeBase:
    """The table that serves a board, of those in `folders` and then the kit's own: that of its
    platform, else of the nearest that it inherits from. Without one the analytic default answers.

    Raises KnowledgeBaseError for a file that cannot be read.
    """
    for platform, path in found_tables(board, *folders, shipped_folder("gemm")):
        return load_table(path).serving(board.platform, platform)
    return KnowledgeBase((board.platform,))


def load_table(path: Path) -> KnowledgeBase:
    """Reads a table; rows that mean nothing to this kit are skipped and counted.

    Raises KnowledgeBaseError for a file that is missing, damaged, or of a newer schema.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KnowledgeBaseError(
            f"{path}: expected a GEMM table, found: {error.strerror}; build one: edgekit kb build"
        ) from None
    try:
        schema = json.loads(data)["schema"]
        if schema != SCHEMA:
            raise KnowledgeBaseError(
                f"{path}: expected schema {SCHEMA}, found {schema}; "
                "update edgekit, or build the table anew: edgekit kb build"
            )
        parsed = msgspec.json.decode(data, type=_File)
        return _table(parsed)
    except KnowledgeBaseError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KnowledgeBaseError(
            f"{path}: expected a GEMM table ({SCHEMA}), found: {error}; "
            "restore it from git or build it anew: edgekit kb build"
        ) from None


def _table(file: _File) -> KnowledgeBase:
    rows, skipped = [], 0
    for raw in file.rows:
        try:
            rows.append(_row(raw, len(file.platforms)))
        except (TypeError, ValueError):
            skipped += 1
    priority: tuple[Feature, ...] = tuple(file.priority)
    given = file.sequences
    sequences = Sequences(
        tuple(given.m), tuple(given.k), tuple(given.n), tuple(given.scale), given.tie
    )
    return KnowledgeBase(tuple(file.platforms), sequences, priority, tuple(rows), skipped)


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


def table_text(table: KnowledgeBase) -> str:
    """The file's content: one row per line, sorted, so that a change is one line of a diff."""
    head = {
        "schema": SCHEMA,
        "platforms": list(table.platforms),
        "sequences": asdict(table.sequences),
        "priority": list(table.priority),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    rows = [f"  {json.dumps(_fields(row))}" for row in sorted(table.rows, key=lambda r: r.key)]
    body = "[\n" + ",\n".join(rows) + "\n ]" if rows else "[]"
    return "{\n" + "\n".join(lines) + f'\n "rows": {body}\n}}\n'


def _fields(row: Row) -> dict[str, Any]:
    return {
        "key": asdict(row.key),
        "method": None if row.method is None else asdict(row.method),
        "shape": asdict(row.shape),
        "source": row.source,
        "history_rows": row.history_rows,
        "ratio": row.ratio,
        "gflops": row.gflops,
        "relaxes": row.relaxes,
        **({"cpu": row.cpu} if row.cpu else {}),
        **({} if row.reach is None else {"reach": row.reach}),
    }

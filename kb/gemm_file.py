"""The table as text: kb/gemm/<platform>.json, reviewed in git and byte-identical when rebuilt.

A row is one line of the values that `columns` names, those at its end that say nothing left out.
Keys are not in it: they follow from the product. Tables of the form before this one, in which
sources stood in the rows, are read as well.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgekit.kb import gemm_file_1
from edgekit.kb.board import BoardProfile
from edgekit.kb.features import GemmShape, Packed, Sequences, key_of
from edgekit.kb.gemm_table import Feature, KnowledgeBase, Row
from edgekit.kb.method import Method
from edgekit.kb.operators import Family, OperatorMethod, OperatorRow
from edgekit.kb.places import found_tables, shipped_folder
from edgekit.kb.rule import LARGEST

SCHEMA = "edgekit.kb.gemm/3"
_BEFORE = "edgekit.kb.gemm/2"


class KnowledgeBaseError(ValueError):
    """A table that cannot be read; the text is one line with file, expected and found."""


class _Sequences(msgspec.Struct, forbid_unknown_fields=True):
    m: list[int]
    k: list[int]
    n: list[int]
    scale: list[int]
    tie: Literal["low", "high"]


class _Method(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A block of 0 is not limited."""

    mc: int
    kc: int
    nc: int
    packs: Literal["", "a", "b", "ab"]
    mr: int
    nr: int
    split: Literal["m", "n"]


class _Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """0 stands for what is not known; a `radius` of 0, for a method that holds in all of its key;
    `source` and `cpu` are positions in the file's lists; `relaxes` is 0 or 1."""

    dtype: str
    threads: int
    packed: Packed
    m: int
    k: int
    n: int
    method: _Method | Literal["analytic"]
    source: int | str
    history_rows: int
    relaxes: int | bool = 1
    ratio: float = 0.0
    gflops: float = 0.0
    radius: int = 0
    cpu: int = 0
    platform: int = 0


_COLUMNS = [field.name for field in msgspec.structs.fields(_Row)]


class _OperatorMethod(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """0 for what a family does not have."""

    mr: int
    nr: int
    split: Literal["m", "n"] = "m"
    family: Family | None = None  # depthwise for such forms, else in_place
    kc: int = 0
    members: int = 1


class _OperatorMethodBefore(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    family: Family
    mr: int
    nr: int
    split: Literal["m", "n"]


class _Operator(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """0 as in `_Row`."""

    form: str
    dtype: str
    threads: int
    m: int
    k: int
    n: int
    method: msgspec.Raw
    source: int | str
    ratio: float = 0.0
    radius: int = 0
    platform: int = 0


_OPERATOR_COLUMNS = tuple(field.name for field in msgspec.structs.fields(_Operator))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    platforms: list[str]
    sequences: _Sequences
    priority: list[Literal["scale", "m", "n", "k"]]
    cpus: list[str]
    columns: list[str]
    rows: list[msgspec.Raw]
    sources: list[str] = []
    operator_columns: tuple[str, ...] = _OPERATOR_COLUMNS
    operators: list[msgspec.Raw] = []


def board_table(board: BoardProfile, *folders: Path) -> KnowledgeBase:
    """The table that serves a board, of those in `folders` and then the kit's own: that of its
    platform, else of the nearest that it inherits from. Without one the analytic default answers.

    Raises KnowledgeBaseError for a file that cannot be read.
    """
    for platform, path in found_tables(board, *folders, shipped_folder("gemm")):
        return load_table(path).serving(board.platform, platform)
    return KnowledgeBase((board.platform,))


def is_old(path: Path) -> bool:
    """Whether a file is a table of the form before this one, which is read all the same."""
    with path.open("rb") as file:
        return gemm_file_1.SCHEMA.encode() in file.read(200)


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
        if schema == gemm_file_1.SCHEMA:
            return gemm_file_1.table_of(data)
        if schema not in (SCHEMA, _BEFORE):
            raise KnowledgeBaseError(
                f"{path}: expected schema {SCHEMA}, found {schema}; "
                "update edgekit, or build the table anew: edgekit kb build"
            )
        return _table(msgspec.json.decode(data, type=_File))
    except KnowledgeBaseError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KnowledgeBaseError(
            f"{path}: expected a GEMM table ({SCHEMA}), found: {error}; "
            "restore it from git or build it anew: edgekit kb build"
        ) from None


def _table(file: _File) -> KnowledgeBase:
    if file.columns != _COLUMNS or file.operator_columns != _OPERATOR_COLUMNS:
        raise ValueError(f"columns {', '.join((*file.columns, *file.operator_columns))}")
    given = file.sequences
    sequences = Sequences(
        tuple(given.m), tuple(given.k), tuple(given.n), tuple(given.scale), given.tie
    )
    rows, skipped = [], 0
    for raw in file.rows:
        try:
            rows.append(_row(raw, sequences, file))
        except (TypeError, ValueError):
            skipped += 1
    operators = []
    for raw in file.operators:
        try:
            operators.append(_operator(raw, sequences, file))
        except (TypeError, ValueError):
            skipped += 1
    priority: tuple[Feature, ...] = tuple(file.priority)
    found = tuple(rows), skipped, tuple(operators)
    return KnowledgeBase(tuple(file.platforms), sequences, priority, *found)


def _row(text: msgspec.Raw, sequences: Sequences, file: _File) -> Row:
    raw = msgspec.json.decode(text, type=_Row)
    if not (0 <= raw.platform < len(file.platforms) and 0 <= raw.cpu < len(file.cpus)):
        raise ValueError(f"unknown platform {raw.platform} or CPU {raw.cpu}")
    if not 0 <= raw.radius < 1 << 31:
        raise ValueError(f"radius {raw.radius}")
    shape = GemmShape(raw.m, raw.k, raw.n)
    key = key_of(shape, raw.platform, sequences, raw.dtype, raw.threads, raw.packed)
    known = (
        raw.ratio or None,
        raw.gflops or None,
        bool(raw.relaxes),
        file.cpus[raw.cpu],
        raw.radius or None,
    )
    source = _source(raw.source, file)
    return Row(key, _method(raw.method), shape, source, raw.history_rows, *known)


def _source(given: int | str, file: _File) -> str:
    if isinstance(given, str):
        return given
    if not 0 <= given < len(file.sources):
        raise ValueError(f"unknown source {given}")
    return file.sources[given]


def _operator(text: msgspec.Raw, sequences: Sequences, file: _File) -> OperatorRow:
    raw = msgspec.json.decode(text, type=_Operator)
    if not 0 <= raw.platform < len(file.platforms) or not 0 <= raw.radius < 1 << 31:
        raise ValueError(f"unknown platform {raw.platform}, or radius {raw.radius}")
    shape = GemmShape(raw.m, raw.k, raw.n)
    key = key_of(shape, raw.platform, sequences, raw.dtype, raw.threads, "b", raw.form)
    method = _operator_method(raw, file.schema)
    known = raw.ratio or None, raw.radius or None
    return OperatorRow(key, method, shape, _source(raw.source, file), *known)


def _operator_method(raw: _Operator, schema: str) -> OperatorMethod | None:
    if bytes(raw.method) == b'"analytic"':
        return None
    if schema == _BEFORE:
        old = msgspec.json.decode(raw.method, type=_OperatorMethodBefore)
        return OperatorMethod(old.family, raw.dtype, old.mr, old.nr, old.split)
    how = msgspec.json.decode(raw.method, type=_OperatorMethod)
    family = how.family or _usual_family(raw.form)
    if min(how.mr, how.nr, how.kc, how.members - 1) < 0:
        raise ValueError(f"impossible method {how}")
    sizes = how.mr or None, how.nr or None
    return OperatorMethod(family, raw.dtype, *sizes, how.split, how.kc or None, how.members)


def _usual_family(form: str) -> Family:
    return "depthwise" if form.startswith("depthwise") else "in_place"


def _method(how: _Method | Literal["analytic"]) -> Method | None:
    if not isinstance(how, _Method):
        return None
    packs = "a" in how.packs, "b" in how.packs
    mc, kc, nc = (block or LARGEST for block in (how.mc, how.kc, how.nc))
    return Method(mc, kc, nc, *packs, how.mr, how.nr, how.split)


def table_text(table: KnowledgeBase) -> str:
    """The file's content: one row per line, sorted, so that a change is one line of a diff; without
    indentation, since all tables share a few hundred thousand bytes."""
    cpus = sorted({"", *(row.cpu for row in table.rows)})
    sources = sorted({r.source for r in table.rows} | {r.source for r in table.operators})
    head = {
        "schema": SCHEMA,
        "platforms": list(table.platforms),
        "sequences": asdict(table.sequences),
        "priority": list(table.priority),
        "cpus": cpus,
        "sources": sources,
        "columns": _COLUMNS,
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    rows = [_line(row, cpus, sources) for row in sorted(table.rows, key=lambda r: r.key)]
    text = "{\n" + "\n".join(lines) + f'\n "rows": {_list(rows)}'
    if table.operators:
        made = [_operator_line(r, sources) for r in sorted(table.operators, key=lambda r: r.key)]
        text += f',\n "operator_columns": {json.dumps(_OPERATOR_COLUMNS)}'
        text += f',\n "operators": {_list(made)}'
    return text + "\n}\n"


def _list(lines: list[str]) -> str:
    return "[\n" + ",\n".join(lines) + "\n ]" if lines else "[]"


def _operator_line(row: OperatorRow, sources: list[str]) -> str:
    key, shape, how = row.key, row.shape, row.method
    method: list[Any] | str = "analytic"
    if how is not None:
        family = None if how.family == _usual_family(key.form) else how.family
        values = [how.mr or 0, how.nr or 0, how.split, family, how.kc or 0, how.members]
        method = _shortened(values, _OperatorMethod)
    line: list[Any] = [
        *(key.form, key.dtype, key.threads, shape.m, shape.k, shape.n, method),
        *(sources.index(row.source), row.ratio or 0, row.radius or 0, key.platform),
    ]
    return _compact(line, _Operator)


def _line(row: Row, cpus: list[str], sources: list[str]) -> str:
    key, shape, how = row.key, row.shape, row.method
    packs = "".join(side for side in ("a", "b") if how and getattr(how, f"pack_{side}"))
    method = how and (*_blocks(how), packs, how.mr, how.nr, how.split)
    values: list[Any] = [
        *(key.dtype, key.threads, key.packed, shape.m, shape.k, shape.n),
        *(method or "analytic", sources.index(row.source), row.history_rows, int(row.relaxes)),
        *(row.ratio or 0, row.gflops or 0, row.radius or 0, cpus.index(row.cpu), key.platform),
    ]
    return _compact(values, _Row)


def _blocks(how: Method) -> list[int]:
    return [0 if block == LARGEST else block for block in (how.mc, how.kc, how.nc)]


def _compact(values: list[Any], kind: type[msgspec.Struct]) -> str:
    return json.dumps(_shortened(values, kind), separators=(",", ":"))


def _shortened(values: list[Any], kind: type[msgspec.Struct]) -> list[Any]:
    """Without what at the end says nothing."""
    fields = msgspec.structs.fields(kind)
    while values[-1] == fields[len(values) - 1].default:
        values.pop()
    return values

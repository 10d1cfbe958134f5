"""The text format of tables: kb/tables/gemm/<platform>.json, reviewed in git and reproducible.

Rows are grouped: values shared by a group are written once, in the order of `group_columns`. A row
is one line with the values named by `columns`, without trailing defaults. Keys are not stored,
since they follow from the product.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from edgekit.host.common.files import read_file
from edgekit.host.compiler.costs.methods.bands import BANDS
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.costs.methods.operators import Family, OperatorMethod
from edgekit.host.compiler.costs.methods.rule import LARGEST
from edgekit.host.compiler.tables.gemm_table import Feature, GemmRow, KnowledgeBase, OperatorRow
from edgekit.host.compiler.tables.supported import drop_unsupported_rows, format_row
from edgekit.kb.decoding import decode_json
from edgekit.kb.features import GemmShape, Packed, Sequences, key_of
from edgekit.kb.tables.paths import found_tables, shipped_folder
from edgekit.kb.targets.board import BoardProfile

SCHEMA = "edgekit.kb.gemm/1"
_RADIUS = 100  # default for rows of operators, which is not written
_T = TypeVar("_T")


class KnowledgeBaseError(ValueError):
    """A table cannot be read; the message is one line with file, expected and found."""


class _Sequences(msgspec.Struct, forbid_unknown_fields=True):
    m: list[int]
    k: list[int]
    n: list[int]
    scale: list[int]
    tie: Literal["low", "high"]


class _Method(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A block of 0 is unlimited."""

    mc: int
    kc: int
    nc: int
    packs: Literal["", "a", "b", "ab"]
    mr: int
    nr: int
    split: Literal["m", "n"] = "m"


class _Group(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An empty `platform` is the first of the file's platforms."""

    dtype: str
    threads: int
    packed: Packed
    source: str
    cpu: str = ""
    platform: str = ""


class _Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A `method` of 0 is the analytic one, a `radius` of 0 means that the method is valid for its
    entire key, and other zeros are unknown values; `relaxes` is 0 or 1."""

    m: int
    k: int
    n: int
    method: _Method | Literal[0] = 0
    history_rows: int = 0
    gflops: float = 0.0
    ratio: float = 1.0
    radius: int = 0
    relaxes: Literal[0, 1] = 1


class _OperatorMethod(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """0 for attributes that a family does not have."""

    mr: int
    nr: int
    split: Literal["m", "n"] = "m"
    family: Family | None = None  # default: depthwise for depthwise forms, else in_place
    kc: int = 0
    members: int = 1
    band: int | None = None


class _OperatorGroup(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """As `_Group`."""

    dtype: str
    threads: int
    source: str
    platform: str = ""


class _Operator(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """For 0, see `_Row`."""

    form: str
    m: int
    k: int
    n: int
    method: _OperatorMethod | Literal[0] = 0
    ratio: float = 1.0
    radius: int = _RADIUS


def _field_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    platforms: list[str]
    sequences: _Sequences
    priority: list[Literal["scale", "m", "n", "k"]]
    groups: list[tuple[msgspec.Raw, list[msgspec.Raw]]]
    group_columns: tuple[str, ...] = _field_names(_Group)
    columns: tuple[str, ...] = _field_names(_Row)
    operator_groups: list[tuple[msgspec.Raw, list[msgspec.Raw]]] = []
    operator_group_columns: tuple[str, ...] = _field_names(_OperatorGroup)
    operator_columns: tuple[str, ...] = _field_names(_Operator)
    operator_sequences: _Sequences | None = None  # None: the same
    schema: str = SCHEMA


def board_table(board: BoardProfile, *folders: Path) -> KnowledgeBase:
    """The table for a board from `folders`, then from edgekit.

    That is the table of its platform, else of the nearest one it inherits from. Rows of its own
    table that the board cannot compute are `skipped`. Without a table the analytic default is used.

    Raises KnowledgeBaseError for a file that cannot be read, or of another core.
    """
    for platform, path in found_tables(board, *folders, shipped_folder("gemm")):
        table = load_table(path)
        if platform not in table.platforms:
            of = ", ".join(table.platforms)
            raise KnowledgeBaseError(f"{path}: expected rows of {platform}, found some of {of}")
        found = table.serving(board.platform, platform)
        lent = platform != board.platform  # inherited rows may legitimately not fit
        return found if lent else drop_unsupported_rows(found, board)
    return KnowledgeBase((board.platform,))


def load_table(path: Path) -> KnowledgeBase:
    """Reads a table; rows unknown to this edgekit are omitted and listed in `skipped`.

    Raises KnowledgeBaseError for a file that is missing, damaged, or of another schema.
    """
    try:
        data = read_file(path)
    except OSError as error:
        remedy = "remove it, or build one" if path.exists() else "build one"
        raise KnowledgeBaseError(
            f"{path}: expected a GEMM table, found: {error.strerror}; {remedy}: "
            "edgekit lab kb build"
        ) from None
    try:
        file = json.loads(data)
        schema = file.get("schema") if isinstance(file, dict) else None
        if schema != SCHEMA:
            raise KnowledgeBaseError(
                f"{path}: expected schema {SCHEMA}, found {schema or 'none'}; remove it, or "
                "build it again: edgekit lab kb build"
            )
        return _build_table(decode_json(data, _File))
    except KnowledgeBaseError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KnowledgeBaseError(
            f"{path}: expected a GEMM table ({SCHEMA}), found: {error}; "
            "remove it, restore it from git or build it again: edgekit lab kb build"
        ) from None


def _build_table(file: _File) -> KnowledgeBase:
    for name, kind in _COLUMNS.items():
        if getattr(file, name) != _field_names(kind):
            raise ValueError(f"{name} {', '.join(getattr(file, name))}")
    sequences = _parse_sequences(file.sequences)
    given = file.operator_sequences
    of_operators = _parse_sequences(given) if given else None
    keys = of_operators or sequences
    rows, skipped = _read_rows(
        file.groups, lambda group, row: _parse_row(group, row, sequences, file)
    )
    operators, odd = _read_rows(
        file.operator_groups, lambda group, row: _parse_operator(group, row, keys, file)
    )
    priority: tuple[Feature, ...] = tuple(file.priority)
    found = (), (*skipped, *odd), tuple(sorted(operators, key=lambda row: row.key))
    table = KnowledgeBase(tuple(file.platforms), sequences, priority, *found)
    return replace(table, operator_sequences=of_operators).with_rows(rows)


def _parse_sequences(given: _Sequences) -> Sequences:
    return Sequences(tuple(given.m), tuple(given.k), tuple(given.n), tuple(given.scale), given.tie)


def _read_rows(
    groups: list[tuple[msgspec.Raw, list[msgspec.Raw]]],
    take: Callable[[msgspec.Raw, msgspec.Raw], _T],
) -> tuple[list[_T], list[str]]:
    """The rows of all groups, and descriptions of rows unknown to this edgekit with the reason."""
    rows, skipped = [], []
    for group, lines in groups:
        for line in lines:
            try:
                rows.append(take(group, line))
            except (TypeError, ValueError) as error:
                skipped.append(f"{format_row(bytes(line))}: {error}")
    return rows, skipped


def _parse_row(head: msgspec.Raw, text: msgspec.Raw, sequences: Sequences, file: _File) -> GemmRow:
    group = decode_json(head, _Group)
    raw = decode_json(text, _Row)
    _check_limits(raw.radius, group.threads)
    shape = GemmShape(raw.m, raw.k, raw.n)
    of = group.dtype, group.threads, group.packed
    key = key_of(shape, _platform_index(group.platform, file), sequences, *of)
    known = raw.ratio or None, raw.gflops or None, bool(raw.relaxes), group.cpu, raw.radius or None
    return GemmRow(key, _parse_method(raw.method), shape, group.source, raw.history_rows, *known)


def _platform_index(name: str, file: _File) -> int:
    """Raises ValueError for a platform that the file does not list."""
    if name and name not in file.platforms:
        raise ValueError(f"expected a platform of {', '.join(file.platforms)}, found {name}")
    return file.platforms.index(name) if name else 0


def _check_limits(radius: int, threads: int) -> None:
    if not 0 <= radius < 1 << 31:
        raise ValueError(f"expected a radius of 0 to 2^31 - 1, found {radius}")
    if threads < 1:
        raise ValueError(f"expected 1 or more threads, found {threads}")


def _parse_operator(
    head: msgspec.Raw, text: msgspec.Raw, sequences: Sequences, file: _File
) -> OperatorRow:
    group = decode_json(head, _OperatorGroup)
    raw = decode_json(text, _Operator)
    _check_limits(raw.radius, group.threads)
    shape = GemmShape(raw.m, raw.k, raw.n)
    where = _platform_index(group.platform, file), sequences
    key = key_of(shape, *where, group.dtype, group.threads, "b", raw.form)
    method = _operator_method(raw, group.dtype)
    return OperatorRow(key, method, shape, group.source, raw.ratio or None, raw.radius or None)


def _operator_method(raw: _Operator, dtype: str) -> OperatorMethod | None:
    how = raw.method
    if not isinstance(how, _OperatorMethod):
        return None
    family = how.family or _usual_family(raw.form)
    if min(how.mr, how.nr, how.kc, how.members - 1) < 0 or how.band not in (None, *BANDS):
        bands = ", ".join(map(str, BANDS))
        raise ValueError(
            f"expected mr, nr and kc of 0 or more, members of 1 or more and a band of {bands}, "
            f"found {how.mr}, {how.nr}, {how.kc}, {how.members} and {how.band}"
        )
    known = how.mr or None, how.nr or None, how.split, how.kc or None, how.members, how.band
    return OperatorMethod(family, dtype, *known)


def _usual_family(form: str) -> Family:
    return "depthwise" if form.startswith("depthwise") else "in_place"


def _parse_method(how: _Method | Literal[0]) -> Method | None:
    if not isinstance(how, _Method):
        return None
    packs = "a" in how.packs, "b" in how.packs
    mc, kc, nc = (block or LARGEST for block in (how.mc, how.kc, how.nc))
    return Method(mc, kc, nc, *packs, how.mr, how.nr, how.split)


def table_text(table: KnowledgeBase) -> str:
    """The file's content: one sorted row per line, so that a change is one line of a diff.

    It is not indented, since all tables share a limit of a few hundred thousand bytes.
    """
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "platforms": table.platforms,
        "sequences": asdict(table.sequences),
        "priority": table.priority,
    }
    rows = sorted(table.rows, key=lambda r: r.key)
    head |= _column_names("group_columns", "columns")
    lists = {
        "groups": _format_groups((_format_group(row, table), _format_line(row)) for row in rows)
    }
    if table.operator_sequences:
        head["operator_sequences"] = asdict(table.operator_sequences)
    if table.operators:
        head |= _column_names("operator_group_columns", "operator_columns")
        made = sorted(table.operators, key=lambda r: r.key)
        lines = ((_operator_group(row, table), _operator_line(row)) for row in made)
        lists["operator_groups"] = _format_groups(lines)
    parts = [f'"{name}": {_encode_json(value)}' for name, value in head.items()]
    return (
        "{\n" + ",\n".join(parts + [f'"{name}": {text}' for name, text in lists.items()]) + "\n}\n"
    )


_COLUMNS: dict[str, type[msgspec.Struct]] = {
    "group_columns": _Group,
    "columns": _Row,
    "operator_group_columns": _OperatorGroup,
    "operator_columns": _Operator,
}


def _column_names(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: _field_names(_COLUMNS[name]) for name in names}


def _format_groups(lines: Iterable[tuple[str, str]]) -> str:
    """Formats groups and their rows in order, from each row's group and text."""
    ordered = sorted(lines, key=lambda line: line[0])  # stable: rows of a group keep their order
    texts = []
    for group, rows in itertools.groupby(ordered, key=lambda line: line[0]):
        texts.append(f"[{group},[\n" + ",\n".join(text for _, text in rows) + "\n]]")
    return "[" + ",\n".join(texts) + "]"


def _format_group(row: GemmRow, table: KnowledgeBase) -> str:
    key = row.key
    values = [
        key.dtype,
        key.threads,
        key.packed,
        row.source,
        row.cpu,
        _platform_name(key.platform, table),
    ]
    return _encode_json(_drop_defaults(values, _Group))


def _operator_group(row: OperatorRow, table: KnowledgeBase) -> str:
    values = [row.key.dtype, row.key.threads, row.source, _platform_name(row.key.platform, table)]
    return _encode_json(_drop_defaults(values, _OperatorGroup))


def _platform_name(platform: int, table: KnowledgeBase) -> str:
    return table.platforms[platform] if platform else ""


def _operator_line(row: OperatorRow) -> str:
    shape, how = row.shape, row.method
    method: list[Any] | int = 0
    if how is not None:
        family = None if how.family == _usual_family(row.key.form) else how.family
        values = [how.mr or 0, how.nr or 0, how.split, family, how.kc or 0, how.members, how.band]
        method = _drop_defaults(values, _OperatorMethod)
    sizes = shape.m, shape.k, shape.n
    line = [row.key.form, *sizes, method, row.ratio or 0, row.radius or 0]
    return _encode_json(_drop_defaults(line, _Operator))


def _format_line(row: GemmRow) -> str:
    shape, how = row.shape, row.method
    method: list[Any] | int = 0
    if how is not None:
        packs = "".join(side for side in ("a", "b") if getattr(how, f"pack_{side}"))
        method = _drop_defaults([*_encode_blocks(how), packs, how.mr, how.nr, how.split], _Method)
    known = row.gflops or 0, row.ratio or 0, row.radius or 0, int(row.relaxes)
    values: list[Any] = [shape.m, shape.k, shape.n, method, row.history_rows, *known]
    return _encode_json(_drop_defaults(values, _Row))


def _encode_blocks(how: Method) -> list[int]:
    return [0 if block == LARGEST else block for block in (how.mc, how.kc, how.nc)]


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _drop_defaults(values: list[Any], kind: type[msgspec.Struct]) -> list[Any]:
    """Drops trailing defaults; integers are written without a decimal point."""
    values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    fields = msgspec.structs.fields(kind)
    while values[-1] == fields[len(values) - 1].default:
        values.pop()
    return values

"""The text format of tables: kb/tables/gemm/<platform>.json, reviewed in git and reproducible.

Rows are grouped: values shared by a group are written once, in the order of `group_columns`. A row
is one line with the values named by `columns`, without trailing defaults. Keys are not stored,
since they follow from the product, and methods of several rows are listed once.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgekit.host.common.files import read_file
from edgekit.host.compiler.costs.methods.bands import BANDS
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.costs.methods.operators import Family, OperatorMethod
from edgekit.host.compiler.costs.methods.rule import LARGEST
from edgekit.host.compiler.tables.gemm_columns import (
    SCHEMA,
    GroupColumns,
    MethodColumns,
    OperatorColumns,
    OperatorGroupColumns,
    OperatorMethodColumns,
    RowColumns,
    SequenceColumns,
    TableFile,
    field_names,
)
from edgekit.host.compiler.tables.gemm_table import Feature, GemmRow, KnowledgeBase, OperatorRow
from edgekit.host.compiler.tables.supported import drop_unsupported_rows, format_row
from edgekit.kb.decoding import decode_json
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.tables.paths import found_tables, shipped_folder
from edgekit.kb.targets.board import BoardProfile

_T = TypeVar("_T")


class KnowledgeBaseError(ValueError):
    """A table cannot be read; the message is one line with file, expected and found."""


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
        return _build_table(decode_json(data, TableFile))
    except KnowledgeBaseError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KnowledgeBaseError(
            f"{path}: expected a GEMM table ({SCHEMA}), found: {error}; "
            "remove it, restore it from git or build it again: edgekit lab kb build"
        ) from None


def _build_table(file: TableFile) -> KnowledgeBase:
    for name, kind in _COLUMNS.items():
        found = getattr(file, name)
        if found != field_names(kind)[: len(found)]:  # older files lack the last ones
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


def _parse_sequences(given: SequenceColumns) -> Sequences:
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


def _parse_row(
    head: msgspec.Raw, text: msgspec.Raw, sequences: Sequences, file: TableFile
) -> GemmRow:
    group = decode_json(head, GroupColumns)
    raw = decode_json(text, RowColumns)
    radius = group.radius if raw.radius is None else raw.radius
    relaxes = group.relaxes if raw.relaxes is None else raw.relaxes
    _check_limits(radius, group.threads)
    shape = GemmShape(raw.m, raw.k, raw.n)
    of = group.dtype, group.threads, group.packed
    key = key_of(shape, _platform_index(group.platform, file), sequences, *of)
    known = raw.ratio or None, raw.gflops or None, bool(relaxes), group.cpu, radius or None
    method = _parse_method(_listed(raw.method, file.methods))
    return GemmRow(key, method, shape, group.source, raw.history_rows, *known)


def _listed(method: _T | int, methods: list[_T]) -> _T | None:
    """A method, which may be the number of one in a list; None for 0."""
    if not isinstance(method, int):
        return method
    if not 0 <= method <= len(methods):
        raise ValueError(f"expected a method of 0 to {len(methods)}, found {method}")
    return methods[method - 1] if method else None


def _platform_index(name: str, file: TableFile) -> int:
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
    head: msgspec.Raw, text: msgspec.Raw, sequences: Sequences, file: TableFile
) -> OperatorRow:
    group = decode_json(head, OperatorGroupColumns)
    raw = decode_json(text, OperatorColumns)
    _check_limits(raw.radius, group.threads)
    shape = GemmShape(raw.m, raw.k, raw.n)
    where = _platform_index(group.platform, file), sequences
    key = key_of(shape, *where, group.dtype, group.threads, "b", raw.form)
    method = _operator_method(_listed(raw.method, file.operator_methods), raw.form, group.dtype)
    return OperatorRow(key, method, shape, group.source, raw.ratio or None, raw.radius or None)


def _operator_method(
    how: OperatorMethodColumns | None, form: str, dtype: str
) -> OperatorMethod | None:
    if how is None:
        return None
    family = how.family or _usual_family(form)
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


def _parse_method(how: MethodColumns | None) -> Method | None:
    if how is None:
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
    methods = _shared([_encode_method(row.method) for row in rows if row.method])
    usual = _usual_tails(rows, table)
    lists = {
        "groups": _format_groups(
            (_format_group(row, table, usual), _format_line(row, table, usual, methods))
            for row in rows
        )
    }
    if methods:
        head["methods"] = [msgspec.Raw(text.encode()) for text in methods]
    if table.operator_sequences:
        head["operator_sequences"] = asdict(table.operator_sequences)
    if table.operators:
        head |= _column_names("operator_group_columns", "operator_columns")
        made = sorted(table.operators, key=lambda r: r.key)
        found = _shared([_encode_operator(row) for row in made if row.method])
        if found:
            head["operator_methods"] = [msgspec.Raw(text.encode()) for text in found]
        lines = ((_operator_group(row, table), _operator_line(row, found)) for row in made)
        lists["operator_groups"] = _format_groups(lines)
    parts = [f'"{name}": {_encode_json(value)}' for name, value in head.items()]
    return (
        "{\n" + ",\n".join(parts + [f'"{name}": {text}' for name, text in lists.items()]) + "\n}\n"
    )


_COLUMNS: dict[str, type[msgspec.Struct]] = {
    "group_columns": GroupColumns,
    "columns": RowColumns,
    "operator_group_columns": OperatorGroupColumns,
    "operator_columns": OperatorColumns,
}


def _column_names(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: field_names(_COLUMNS[name]) for name in names}


def _format_groups(lines: Iterable[tuple[str, str]]) -> str:
    """Formats groups and their rows in order, from each row's group and text."""
    ordered = sorted(lines, key=lambda line: line[0])  # stable: rows of a group keep their order
    texts = []
    for group, rows in itertools.groupby(ordered, key=lambda line: line[0]):
        texts.append(f"[{group},[\n" + ",\n".join(text for _, text in rows) + "\n]]")
    return "[" + ",\n".join(texts) + "]"


_Tail = tuple[int, int]  # radius and relaxes


def _tail_of(row: GemmRow) -> _Tail:
    return row.radius or 0, int(row.relaxes)


def _group_of(row: GemmRow, table: KnowledgeBase) -> tuple[Any, ...]:
    key = row.key
    platform = _platform_name(key.platform, table)
    return key.dtype, key.threads, key.packed, row.source, row.cpu, platform


def _usual_tails(rows: Iterable[GemmRow], table: KnowledgeBase) -> dict[tuple[Any, ...], _Tail]:
    """The most frequent one of each group, the lowest of several."""
    found: dict[tuple[Any, ...], Counter[_Tail]] = defaultdict(Counter)
    for row in rows:
        found[_group_of(row, table)][_tail_of(row)] += 1
    return {group: min(tails, key=lambda t: (-tails[t], t)) for group, tails in found.items()}


def _shared(methods: Sequence[str]) -> dict[str, int]:
    """The methods that occur several times, the most frequent first, and their numbers from 1."""
    counts = Counter(methods)
    several = sorted((m for m, n in counts.items() if n > 1), key=lambda m: (-counts[m], m))
    return {method: number for number, method in enumerate(several, 1)}


def _format_group(
    row: GemmRow, table: KnowledgeBase, usual: Mapping[tuple[Any, ...], _Tail]
) -> str:
    group = _group_of(row, table)
    return _encode_json(_drop_defaults([*group, *usual[group]], GroupColumns))


def _operator_group(row: OperatorRow, table: KnowledgeBase) -> str:
    values = [row.key.dtype, row.key.threads, row.source, _platform_name(row.key.platform, table)]
    return _encode_json(_drop_defaults(values, OperatorGroupColumns))


def _platform_name(platform: int, table: KnowledgeBase) -> str:
    return table.platforms[platform] if platform else ""


def _encode_operator(row: OperatorRow) -> str:
    how = row.method
    assert how is not None
    family = None if how.family == _usual_family(row.key.form) else how.family
    values = [how.mr or 0, how.nr or 0, how.split, family, how.kc or 0, how.members, how.band]
    return _encode_json(_drop_defaults(values, OperatorMethodColumns))


def _operator_line(row: OperatorRow, methods: Mapping[str, int]) -> str:
    shape = row.shape
    method = _reference(_encode_operator(row), methods) if row.method else 0
    sizes = shape.m, shape.k, shape.n
    line = [row.key.form, *sizes, method, row.ratio or 0, row.radius or 0]
    return _encode_json(_drop_defaults(line, OperatorColumns))


def _reference(method: str, methods: Mapping[str, int]) -> msgspec.Raw | int:
    return methods.get(method) or msgspec.Raw(method.encode())


def _encode_method(how: Method) -> str:
    packs = "".join(side for side in ("a", "b") if getattr(how, f"pack_{side}"))
    values = [*_encode_blocks(how), packs, how.mr, how.nr, how.split]
    return _encode_json(_drop_defaults(values, MethodColumns))


def _format_line(
    row: GemmRow,
    table: KnowledgeBase,
    usual: Mapping[tuple[Any, ...], _Tail],
    methods: Mapping[str, int],
) -> str:
    shape = row.shape
    method = _reference(_encode_method(row.method), methods) if row.method else 0
    tail = _tail_of(row)
    values: list[Any] = [shape.m, shape.k, shape.n, method, row.history_rows]
    values += [row.gflops or 0, row.ratio or 0]
    values += (None, None) if tail == usual[_group_of(row, table)] else tail
    return _encode_json(_drop_defaults(values, RowColumns))


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

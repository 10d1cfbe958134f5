"""Forms 2 and 3 of a GEMM table, which are read but not written any more: users have such files.

A row was one list with all that it says, `source` and `cpu` positions in lists at the file's head
(form 2: the source itself); an operator's method in form 2 began with its family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_HEAD = ("platforms", "sequences", "priority")
_COLUMNS = ["dtype", "threads", "packed", "m", "k", "n", "method", "source", "history_rows",
            "relaxes", "ratio", "gflops", "radius", "cpu", "platform"]  # fmt: skip
_OPERATOR_COLUMNS = ["form", "dtype", "threads", "m", "k", "n", "method", "source", "ratio",
                     "radius", "platform"]  # fmt: skip
_LAST = 0, 0, 0, 1, 0, 0, 0, 0, 0  # method, source and on: what was not written
_OPERATOR_LAST = 0, 0, 0, 0, 0
SCHEMAS = ("edgekit.kb.gemm/2", "edgekit.kb.gemm/3")


def renewed(file: dict[str, Any]) -> dict[str, Any]:
    """What a file of these forms says, in today's form: each row a group of its own. A row that
    cannot be read becomes one that today's form cannot read either.

    Raises ValueError, KeyError or TypeError for a damaged file.
    """
    columns = file["columns"], file.get("operator_columns", _OPERATOR_COLUMNS)
    if columns != (_COLUMNS, _OPERATOR_COLUMNS):
        raise ValueError(f"columns {', '.join((*columns[0], *columns[1]))}")
    made = {name: file[name] for name in _HEAD}
    made["groups"] = [_attempt(_product, row, file) for row in file["rows"]]
    made["operator_groups"] = [_attempt(_operator, row, file) for row in file.get("operators", [])]
    return made


def _attempt(
    take: Callable[[list[Any], dict[str, Any]], list[Any]], row: Any, file: dict[str, Any]
) -> list[Any]:
    try:
        return take(row, file)
    except (TypeError, ValueError, IndexError):
        return [[], [row]]


def _product(row: list[Any], file: dict[str, Any]) -> list[Any]:
    *kinds, m, k, n = row[:6]
    method, source, count, relaxes, ratio, rate, radius, cpu, platform = _full(row[6:], _LAST)
    where = _listed(source, file), _listed(cpu, file, "cpus"), _listed(platform, file, "platforms")
    values = [m, k, n, _today(method), count, rate, ratio, radius, int(relaxes)]
    return [[*kinds, *where], [values]]


def _operator(row: list[Any], file: dict[str, Any]) -> list[Any]:
    form, dtype, threads, m, k, n = row[:6]
    method, source, ratio, radius, platform = _full(row[6:], _OPERATOR_LAST)
    if file["schema"] == SCHEMAS[0] and method != "analytic":
        family, *tile = method
        method = [*tile, family]
    where = _listed(source, file), _listed(platform, file, "platforms")
    return [[dtype, threads, *where], [[form, m, k, n, _today(method), ratio, radius]]]


def _full(values: list[Any], defaults: tuple[int, ...]) -> list[Any]:
    """With what was left out at the end."""
    return [*values, *defaults[len(values) :]]


def _today(method: Any) -> Any:
    return 0 if method == "analytic" else method


def _listed(given: int | str, file: dict[str, Any], of: str = "sources") -> str:
    """What stands at a position of a list in the file's head. Raises ValueError if nothing does."""
    if isinstance(given, str):
        return given
    known: list[str] = file.get(of, [])
    if not 0 <= given < len(known):
        raise ValueError(f"{of}: nothing at {given}")
    return known[given]

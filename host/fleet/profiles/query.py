"""SQL queries on the store, run by DuckDB without access to files, settings or other tables.

DuckDB's own parser decides what a query is; see `_check`. Rows reach DuckDB from PyArrow, so the
connection neither knows a path nor may open one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.device.runtime.arrays.calls import KINDS
from edgekit.host.common.addresses import more_addresses
from edgekit.host.common.optional import optional
from edgekit.host.common.text import printable
from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.parquet import (
    FIELD_COLUMNS,
    REPEATED_TEXTS,
    encoded_schema,
    libraries,
    read_part,
    schema,
)

if TYPE_CHECKING:
    import pyarrow

_MEMORY = "1GB"
_ADDRESSES = 3 << 29  # bytes; DuckDB does not count the values of expressions
_BATCH_COLUMNS = (
    "board, received, uuid, spool, boot, sequence, began_ns, ended_ns, dropped, lost, inferences, "
    "clock, every, release, model, model_sha256, profile, kit, variant, threads, cluster, "
    "governor, frequency_mhz, temperature_c, others, load, available_bytes, resident_bytes, "
    "throttled, inference_samples, inference_median_ns, inference_p90_ns, inference_max_ns"
)
_FORMATS = (".parquet", ".csv", ".json")
_VIEWS = ("operators", "batches", "fields")
_SOURCES = ("unnest", "range", "generate_series")  # functions that may replace a table
_SEALED = ("current_setting", "getenv", "write_log")  # scalar functions that reach outside
_FORMULA = r"^[=+\-@\t\r]"
_CALLS = f"""
    SELECT profile, op, name, kernel, threads, sum(samples), count(DISTINCT board),
        median(median_ns) / 1e3 AS us
    FROM operators WHERE op IN {KINDS} GROUP BY ALL ORDER BY us DESC, name, kernel, threads, profile
"""


@dataclass(frozen=True)
class QueryResult:
    """Columns and rows; `more` if the result was truncated."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


class Source(Protocol):
    """A store that can be queried: ProfileStore or SharedStore. `remote` is the file system of
    files that DuckDB cannot reach by itself."""

    folder: Any
    remote: Any

    def reading(self) -> AbstractContextManager[tuple[Any, Sequence[Path]]]: ...


class Views:
    """The views of a store, asked with SQL of edgekit or such that `query` would run."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows; `values` are those of the placeholders."""
        found: list[Any] = self.run(lambda connection: connection.execute(sql, values).fetchall())
        return found

    def table(self, sql: str, values: Sequence[Any] | None = None) -> pyarrow.Table:
        """The result as an Arrow table."""
        return self.run(lambda connection: connection.sql(sql, params=values).to_arrow_table())

    def run(self, call: Callable[[Any], Any]) -> Any:
        """Calls with the DuckDB connection. SIGINT ends it: in a thread, since DuckDB may consume
        the signal in the main one and go on."""
        future: Future[Any] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call(self._connection))
            except BaseException as error:  # is raised where the result is awaited
                future.set_exception(error)

        try:
            # An executor would forget a thread whose start is interrupted.
            threading.Thread(target=work, name="query").start()
            return future.result()
        except KeyboardInterrupt:
            while not future.cancel() and not future.done():
                self._connection.interrupt()  # the query may not have started yet
                wait([future], 0.05)
            raise


def query(store: Source, sql: str, most_rows: int) -> QueryResult:
    """Runs a query on the views `operators`, `batches` and `fields`; InputError if it fails."""

    def ask(connection: Any) -> tuple[tuple[str, ...], list[Any]]:
        found = connection.execute(sql)
        columns = tuple(column[0] for column in found.description or ())
        return columns, found.fetchmany(most_rows + 1)

    with _sql_errors(), asking(store) as views, more_addresses(_ADDRESSES):
        _check(views, sql)
        columns, rows = views.run(ask)
        return QueryResult(columns, tuple(rows[:most_rows]), len(rows) > most_rows)


def export(store: Source, target: Path, sql: str = "FROM operators") -> int:
    """Writes a query result to a file, as .parquet, .csv or .json by its name; returns the row
    count."""
    if target.suffix not in _FORMATS:
        raise InputError(
            f"{target}: expected a name that ends in {', '.join(_FORMATS)}, "
            f"found '{target.suffix}'; choose one of them"
        )
    _, pq = libraries()
    from edgekit.host.common.files import atomic_writer

    with _sql_errors(), asking(store) as views:
        _check(views, sql)
        table = views.table(sql)
        with atomic_writer(target) as file:
            if target.suffix == ".parquet":
                pq.write_table(table, file, compression="zstd")
            elif target.suffix == ".csv":
                _write_csv(table, file)
            else:
                import msgspec

                for rows in table.to_batches(max_chunksize=10_000):
                    file.writelines(msgspec.json.encode(row) + b"\n" for row in rows.to_pylist())
    rows_written: int = table.num_rows
    return rows_written


def _write_csv(table: Any, file: Any) -> None:
    """Writes a table as CSV. Text that a spreadsheet would take for a formula gets an apostrophe in
    front, since boards choose names."""
    pa, _ = libraries()
    import pyarrow.compute as pc
    import pyarrow.csv

    for at, field in enumerate(table.schema):
        column = table.column(at)
        if pa.types.is_dictionary(field.type):  # DuckDB's ENUM
            column = column.cast(pa.string())
        if pa.types.is_string(column.type):
            marked = pc.replace_substring_regex(column, _FORMULA, r"'\0")
            table = table.set_column(at, field.name, marked)
    try:
        pyarrow.csv.write_csv(table, file)
    except pa.ArrowException as error:
        raise InputError(
            f"expected numbers and text for CSV, found: {str(error)[:100]}; cast such columns to "
            "VARCHAR, or write .json"
        ) from None


def _check(views: Views, sql: str) -> None:
    """InputError unless `sql` is one SELECT over the views; DuckDB serializes nothing else."""
    import json

    def ask(sql: str, *values: str) -> list[Any]:
        rows: list[Any] = [row[0] for row in views.rows(sql, values)]
        return rows

    try:
        parsed = json.loads(ask("SELECT json_serialize_sql(?::VARCHAR)", sql)[0])
    except RecursionError:
        raise _refused("a query that nests too deeply") from None
    if parsed["error"]:
        other = parsed["error_type"] == "not implemented"
        raise _refused("another statement" if other else parsed["error_message"])
    if len(parsed["statements"]) != 1:
        raise _refused(f"{len(parsed['statements'])} statements")
    nodes = list(_nodes(parsed))
    defined = {one["key"].lower() for n in nodes for one in n.get("cte_map", {}).get("map", ())}
    # Outside its scope, such a name would mean the table that the database itself has.
    for name in defined.intersection(ask("SELECT lower(view_name) FROM duckdb_views()")):
        raise _refused(f"WITH {name}, the name of another view")
    for node in nodes:
        if why := _forbidden(node, {*_VIEWS, *defined}):
            raise _refused(why)


def _forbidden(node: Mapping[str, Any], tables: Set[str]) -> str:
    """Why a part of a parsed query may not run, or nothing. `tables` are the names it may use."""
    kind, name = node.get("type"), str(node.get("table_name", ""))
    elsewhere = node.get("catalog_name") or node.get("schema_name") not in ("", "main", None)
    if kind == "BASE_TABLE" and (elsewhere or name.lower() not in tables):
        return f"table {name}"
    if kind == "SHOW_REF" and (elsewhere or name.lower() not in ("", *tables)):
        return f"SHOW {name}"
    function = str((node.get("function") or node).get("function_name", ""))
    if kind == "TABLE_FUNCTION" and function.lower() not in _SOURCES:
        return f"table function {function}"
    return f"function {function}" if function.lower() in _SEALED else ""


def _nodes(parsed: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON document."""
    waiting = [parsed]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _refused(found: str) -> InputError:
    return InputError(
        "expected one SELECT over the views operators, batches and fields, found: "
        f"{printable(' '.join(found.split()), 300)}; "
        "their columns: edgekit profile list 'DESCRIBE operators'"
    )


@contextlib.contextmanager
def asking(store: Source) -> Iterator[Views]:
    """The views, in a database without access to files. TransferError names a corrupted file."""
    (duckdb,) = optional("duckdb")
    with store.reading() as (_, paths), contextlib.closing(duckdb.connect(":memory:")) as database:
        views = Views(database)
        try:
            views.run(lambda connection: _make_views(connection, paths, store.remote))
            yield views
        except duckdb.Error as error:
            mistakes = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
            others = (duckdb.PermissionException, duckdb.OutOfMemoryException)
            if not isinstance(error, (*mistakes, *others)):
                for path in paths:
                    read_part(path, store.remote)
            raise


def _make_views(database: Any, paths: Sequence[Path], remote: Any) -> None:
    import pyarrow.dataset

    rows: Any = schema().empty_table()
    if paths:
        files = [str(path) for path in paths]
        options = pyarrow.dataset.ParquetReadOptions(dictionary_columns=REPEATED_TEXTS)
        form = pyarrow.dataset.ParquetFileFormat(read_options=options)
        rows = pyarrow.dataset.dataset(files, encoded_schema(), form, filesystem=remote)
    database.register("rows", rows)
    own = ", ".join(FIELD_COLUMNS)
    database.execute(
        f"CREATE VIEW operators AS SELECT * EXCLUDE ({own}) FROM rows WHERE float_sha256 IS NULL"
    )
    database.execute(
        f"CREATE VIEW fields AS SELECT {_BATCH_COLUMNS}, name, samples, {own} FROM rows "
        "WHERE float_sha256 IS NOT NULL"
    )
    # All rows of a batch share the same batch columns, so its first row represents it.
    database.execute(
        f"CREATE VIEW batches AS SELECT {_BATCH_COLUMNS} FROM operators WHERE position = 0"
    )
    database.execute("SET enable_progress_bar = false")  # it would be part of the output
    database.execute(f"SET memory_limit = '{_MEMORY}'")
    database.execute("SET python_enable_replacements = false")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


@contextlib.contextmanager
def _sql_errors() -> Iterator[None]:
    import duckdb

    try:
        yield
    except (MemoryError, duckdb.OutOfMemoryException):
        raise InputError(
            f"expected a query that needs at most {_MEMORY} of memory, found one that needs more; "
            "select fewer or smaller values"
        ) from None
    except duckdb.Error as error:
        raise _refused(str(error)) from None


@dataclass(frozen=True)
class CallTimes:
    """A product with one method on one type of board: number of samples and boards, and the
    median of its times."""

    board_type: str
    kind: str
    product: str
    method: str
    threads: int
    samples: int
    boards: int
    median_us: float


def call_times(store: Source) -> tuple[CallTimes, ...]:
    """The products of all programs, slowest first."""
    with asking(store) as views:
        return tuple(CallTimes(*row) for row in views.rows(_CALLS))

"""SQL queries on the store, run by DuckDB with access to the store only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.parquet import libraries, missing, read_part, schema

_MEMORY = "1GB"
_BATCH_COLUMNS = (
    "board, received, uuid, spool, boot, sequence, began_ns, ended_ns, dropped, lost, inferences, "
    "clock, every, release, model, model_sha256, profile, kit, variant, threads, cluster, "
    "governor, frequency_mhz, temperature_c, others, load, available_bytes, resident_bytes, "
    "throttled, inference_samples, inference_median_ns, inference_p90_ns, inference_max_ns"
)
_FORMATS = (".parquet", ".csv", ".json")


@dataclass(frozen=True)
class Answer:
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


def query(store: Source, sql: str, most_rows: int) -> Answer:
    """Runs a query on the views `operators` and `batches`; InputError if it fails."""
    with _sql_errors(), asking(store) as connection:
        found = connection.execute(sql)
        columns = tuple(column[0] for column in found.description or ())
        rows = found.fetchmany(most_rows + 1)
        return Answer(columns, tuple(rows[:most_rows]), len(rows) > most_rows)


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

    with _sql_errors(), asking(store) as connection:
        found = connection.sql(sql)
        if found is None:
            raise InputError(f"expected SQL that answers with rows, found {sql[:60]!r}")
        table = found.to_arrow_table()
        with atomic_writer(target) as file:
            if target.suffix == ".parquet":
                pq.write_table(table, file, compression="zstd")
            elif target.suffix == ".csv":
                import pyarrow.csv

                pyarrow.csv.write_csv(table, file)
            else:
                import msgspec

                for rows in table.to_batches(max_chunksize=10_000):
                    file.writelines(msgspec.json.encode(row) + b"\n" for row in rows.to_pylist())
    rows_written: int = table.num_rows
    return rows_written


@contextlib.contextmanager
def asking(store: Source) -> Iterator[Any]:
    """A DuckDB connection with the views and no access to other files. TransferError names a
    corrupted file."""
    try:
        import duckdb
    except ImportError:
        raise missing("duckdb") from None
    with store.reading() as (_, paths), contextlib.closing(duckdb.connect(":memory:")) as database:
        try:
            _make_views(database, paths, store.remote)
            yield database
        except duckdb.Error as error:
            mistakes = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
            if not isinstance(error, (*mistakes, duckdb.PermissionException)):
                for path in paths:
                    read_part(path, store.remote)
            raise


def _make_views(database: Any, paths: Sequence[Path], remote: Any) -> None:
    names = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    database.register("empty", schema().empty_table())
    rows = "SELECT * FROM empty"
    if paths and remote is not None:
        import pyarrow.dataset

        files = [str(path) for path in paths]
        found = pyarrow.dataset.dataset(files, schema(), "parquet", filesystem=remote)
        database.register("remote", found)
        rows, names = "SELECT * FROM remote", ""
    elif paths:
        rows = f"SELECT * FROM read_parquet([{names}], hive_partitioning = false)"
    database.execute(f"CREATE VIEW operators AS {rows}")
    # All rows of a batch share the same batch columns, so its first row represents it.
    database.execute(
        f"CREATE VIEW batches AS SELECT {_BATCH_COLUMNS} FROM operators WHERE position = 0"
    )
    database.execute(f"SET memory_limit = '{_MEMORY}'")
    database.execute(f"SET allowed_paths = [{names}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


@contextlib.contextmanager
def _sql_errors() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise InputError(
            f"expected SQL over the views operators and batches, found: {str(error)[:300]}; "
            "their columns: edgekit profile list 'DESCRIBE operators'"
        ) from None

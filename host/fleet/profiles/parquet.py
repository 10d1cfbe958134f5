"""Converts batches to Parquet: a row per operator, or per tensor of a field report, including all
properties of the batch."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgekit.host.common.files import atomic_writer
from edgekit.host.common.optional import optional
from edgekit.host.common.text import printable
from edgekit.host.errors import TransferError
from edgekit.host.fleet.profiles.batch import Arrival, Batch
from edgekit.host.fleet.profiles.catalog import ParquetPart

if TYPE_CHECKING:
    import pyarrow

_TEXT, _WHOLE, _NUMBER, _FLAG = "string", "int64", "double", "bool"
# Sources of the columns: the batch, its subject, or its surroundings.
_BATCH = {
    **dict.fromkeys(("uuid", "spool", "boot"), _TEXT),
    **dict.fromkeys(("sequence", "began_ns", "ended_ns", "dropped", "lost", "inferences"), _WHOLE),
    **dict.fromkeys(("clock", "every"), _NUMBER),
}
_SUBJECT = {
    **dict.fromkeys(("release", "model", "model_sha256", "profile", "kit"), _TEXT),
    **dict.fromkeys(("variant", "threads"), _WHOLE),
}
_ENVIRONMENT = {
    **dict.fromkeys(("cluster", "governor"), _TEXT),
    **dict.fromkeys(("frequency_mhz", "temperature_c", "others", "load"), _NUMBER),
    **dict.fromkeys(("available_bytes", "resident_bytes"), _WHOLE),
    "throttled": _FLAG,
}
REPEATED_TEXTS = (
    "board",
    "release",
    "model",
    "model_sha256",
    "profile",
    "kit",
    "cluster",
    "governor",
    "name",
    "op",
    "kernel",
    "float_sha256",
    "measure",
)
# Of field reports: a row with `measure` for its agreement, and a row with a `sketch` per tensor.
FIELD_COLUMNS = {
    **dict.fromkeys(("float_sha256", "measure"), _TEXT),
    "agreed": _WHOLE,
    **dict.fromkeys(("low", "high", "from_low", "to_high"), _NUMBER),
    "odd": _WHOLE,
    "sketch": _TEXT,
}
_SPREAD = ("samples", "median_ns", "p90_ns", "max_ns")


def libraries() -> tuple[Any, ...]:
    """Imports pyarrow and pyarrow.parquet; InputError says how to install them."""
    return optional("pyarrow", "pyarrow.parquet")


def schema() -> pyarrow.Schema:
    """Schema of all columns, also used for an empty store."""
    pa, _ = libraries()
    kinds = {"board": _TEXT, "received": _NUMBER, **_BATCH, **_SUBJECT, **_ENVIRONMENT}
    kinds |= {f"inference_{name}": _WHOLE for name in _SPREAD}
    kinds |= {"position": _WHOLE, "name": _TEXT, "op": _TEXT, "kernel": _TEXT}
    kinds |= dict.fromkeys(_SPREAD, _WHOLE) | FIELD_COLUMNS
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in kinds.items()])


def encoded_schema() -> pyarrow.Schema:
    """The same with dictionaries of `REPEATED_TEXTS`, which queries group and compare faster."""
    pa, _ = libraries()
    encoded = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([f.with_type(encoded) if f.name in REPEATED_TEXTS else f for f in schema()])


def table_of(arrivals: Sequence[Arrival]) -> pyarrow.Table:
    """Converts batches to a table, which has columns of field reports only if there are any."""
    pa, _ = libraries()
    plain = [arrival for arrival in arrivals if arrival.batch.field is None]
    operators = [operator for arrival in plain for operator in arrival.batch.operators]
    lengths = [len(arrival.batch.operators) for arrival in plain]
    columns: dict[str, list[Any]] = {
        "position": [position for length in lengths for position in range(length)],
        **{n: [getattr(o, n) for o in operators] for n in ("name", "op", "kernel", *_SPREAD)},
    }
    rows = _repeated(plain, lengths, columns)
    reports = [arrival for arrival in arrivals if arrival.batch.field is not None]
    if not reports:
        return rows
    found = [[*_field_rows(arrival.batch)] for arrival in reports]
    columns = {
        name: [row.get(name) for each in found for row in each]
        for name in ("name", "samples", *FIELD_COLUMNS)
    }
    fields = _repeated(reports, [len(each) for each in found], columns)
    return pa.concat_tables([rows, fields], promote_options="default")


def _repeated(
    arrivals: Sequence[Arrival], lengths: Sequence[int], columns: Mapping[str, list[Any]]
) -> pyarrow.Table:
    """The properties of each batch in as many rows as `lengths` says, with more `columns`."""
    pa, _ = libraries()
    kinds, batches = schema(), [arrival.batch for arrival in arrivals]
    own: dict[str, list[Any]] = {
        "board": [arrival.board for arrival in arrivals],
        "received": [arrival.received for arrival in arrivals],
        **{name: [getattr(b, name) for b in batches] for name in _BATCH},
        **{name: [getattr(b.subject, name) for b in batches] for name in _SUBJECT},
        **{name: [getattr(b.environment, name) for b in batches] for name in _ENVIRONMENT},
        **{f"inference_{name}": [getattr(b.whole, name) for b in batches] for name in _SPREAD},
    }
    wide = pa.table({n: pa.array(v, kinds.field(n).type) for n, v in own.items()})
    rows = wide.take(pa.array(np.repeat(np.arange(len(batches)), lengths)))
    for name, values in columns.items():
        rows = rows.append_column(name, pa.array(values, kinds.field(name).type))
    return rows


def _field_rows(batch: Batch) -> Iterator[dict[str, Any]]:
    report = batch.field
    assert report is not None
    of_all = {"float_sha256": report.float_sha256, "samples": batch.whole.samples}
    yield {**of_all, "measure": report.measure, "agreed": report.agreed}
    for each in report.ranges:
        yield {**of_all, **msgspec.structs.asdict(each)}


def write_part(
    folder: Path,
    profile: str,
    date: str,
    tables: Iterable[pyarrow.Table],
    sync: Callable[[int], None] = os.fsync,
) -> ParquetPart:
    """Writes a Parquet file with these rows; durable on return, but not yet in the catalog. `sync`
    makes the file or folder of a descriptor durable."""
    pa, _ = libraries()
    table = pa.concat_tables(tables, promote_options="default")  # older files have fewer columns
    path = part_path(profile, date, uuid.uuid4().hex)
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_writer(target, sync) as file:
        write_table(table, file)
    for parent in (target.parent, target.parent.parent, folder):
        sync_folder(parent, sync)
    return ParquetPart(path, target.stat().st_size, table.num_rows, date)


def part_path(profile: str, date: str, name: str) -> str:
    """Path of a file of rows, relative to `parts`."""
    return f"board_type={profile}/date={date}/{name}.parquet"


def write_table(table: pyarrow.Table, file: Any) -> None:
    """Writes Parquet in the store's format to a file or a PyArrow stream."""
    _, pq = libraries()
    pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def read_part(path: Path, remote: Any = None) -> pyarrow.Table:
    """Reads all rows of a file, from PyArrow's file system `remote` if given; TransferError if a
    checksum does not match."""
    pa, pq = libraries()
    try:
        file = pq.ParquetFile(str(path), page_checksum_verification=True, filesystem=remote)
        return file.read()
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, printable(str(error).strip(), 120)) from None


def damaged(path: Path, found: str) -> TransferError:
    """The error for a corrupted file of the store."""
    return TransferError(
        f"{path}: expected the rows that were written, found: {found}; restore it from a backup"
    )


def sync_folder(folder: Path, sync: Callable[[int], None] = os.fsync) -> None:
    """Calls `sync` for `folder`, so that renames into it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)

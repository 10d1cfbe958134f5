"""Stores all measured products, operators and orders in a SQLite file in the user's data folder.

SQLite's journal makes each `add` atomic even if the process or the machine dies, and allows
concurrent tuners. A file with another schema version is rejected.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.costs.methods.gemm import Method, split_of
from edgekit.host.errors import InputError
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.history.operator_history import OperatorMeasurement
from edgekit.host.lab.history.orders import OrderMeasurement
from edgekit.host.lab.history.records import (
    OPERATOR_COLUMNS,
    ORDER_COLUMNS,
    Values,
    operator_measurement,
    operator_row,
    order_measurement,
    order_row,
)
from edgekit.kb.features import GemmShape, packed_of

_WAIT_SECONDS = 30  # for another writer
_VERSION = 7
_SCHEMA = """
CREATE TABLE gemm (
    id INTEGER PRIMARY KEY,
    board TEXT NOT NULL, platform TEXT NOT NULL, dtype TEXT NOT NULL,
    threads INTEGER NOT NULL,
    m INTEGER NOT NULL, k INTEGER NOT NULL, n INTEGER NOT NULL,
    mc INTEGER NOT NULL, kc INTEGER NOT NULL, nc INTEGER NOT NULL,
    pack_a INTEGER NOT NULL, pack_b INTEGER NOT NULL,
    mr INTEGER NOT NULL, nr INTEGER NOT NULL, split TEXT NOT NULL,
    cost REAL NOT NULL, default_cost REAL NOT NULL, spread REAL NOT NULL,
    "when" TEXT NOT NULL, kit_version TEXT NOT NULL, source TEXT NOT NULL, unit TEXT NOT NULL,
    packed TEXT NOT NULL, cpu TEXT NOT NULL
);
CREATE INDEX gemm_product ON gemm (platform, dtype, threads, m, k, n);
CREATE TABLE operators (
    id INTEGER PRIMARY KEY,
    board TEXT NOT NULL, platform TEXT NOT NULL, model TEXT NOT NULL, operator TEXT NOT NULL,
    form TEXT NOT NULL, threads INTEGER NOT NULL,
    m INTEGER NOT NULL, k INTEGER NOT NULL, n INTEGER NOT NULL,
    family TEXT NOT NULL, precision TEXT NOT NULL,
    mr INTEGER NOT NULL, nr INTEGER NOT NULL, split TEXT NOT NULL,
    kc INTEGER NOT NULL, members INTEGER NOT NULL, band INTEGER,
    cost REAL NOT NULL, default_cost REAL NOT NULL,
    "when" TEXT NOT NULL, kit_version TEXT NOT NULL, source TEXT NOT NULL, unit TEXT NOT NULL
);
CREATE INDEX operators_platform ON operators (platform);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    board TEXT NOT NULL, platform TEXT NOT NULL, model TEXT NOT NULL, part TEXT NOT NULL,
    graph TEXT NOT NULL, run_order TEXT NOT NULL, searched TEXT NOT NULL,
    threads INTEGER NOT NULL, cost REAL NOT NULL, default_cost REAL NOT NULL,
    "when" TEXT NOT NULL, kit_version TEXT NOT NULL, source TEXT NOT NULL, unit TEXT NOT NULL
);
CREATE INDEX orders_platform ON orders (platform)
"""
_COLUMNS = (
    "board", "platform", "dtype", "threads", "m", "k", "n", "mc", "kc", "nc", "pack_a", "pack_b",
    "mr", "nr", "split", "cost", "default_cost", "spread", "when", "kit_version", "source", "unit",
    "packed", "cpu",
)  # fmt: skip


_M = TypeVar("_M")


@dataclass(frozen=True)
class Read(Generic[_M]):
    """Measurements from a history, and the number of rows skipped for impossible values."""

    measurements: list[_M]
    skipped: int


class History:
    """The history in `path` (created on first use). Close it, or use it as a context manager."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_folder() / "history.sqlite"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._convert_errors():
            self._db = sqlite3.connect(
                self.path,
                timeout=_WAIT_SECONDS,
                isolation_level=None,
                check_same_thread=False,  # a board's answers may arrive on a transport thread
            )
            self._use_journal()
            self._db.execute("PRAGMA synchronous = FULL")
            self._create_tables()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def add(self, measurements: Iterable[Measurement]) -> int:
        """Stores all measurements or none; returns their number."""
        rows = [_to_row(m) for m in measurements]
        with self._transaction():
            self._insert_rows("gemm", _COLUMNS, rows)
        return len(rows)

    def add_operators(self, measurements: Iterable[OperatorMeasurement]) -> int:
        """Like `add`, for operators of models."""
        rows = [operator_row(m) for m in measurements]
        with self._transaction():
            self._insert_rows("operators", OPERATOR_COLUMNS, rows)
        return len(rows)

    def add_orders(self, measurements: Iterable[OrderMeasurement]) -> int:
        """Like `add`, for orders of operators."""
        rows = [order_row(m) for m in measurements]
        with self._transaction():
            self._insert_rows("orders", ORDER_COLUMNS, rows)
        return len(rows)

    def add_new(self, measurements: Iterable[Measurement]) -> int:
        """Adds the measurements not present yet, ignoring the time of storage."""
        with self._transaction():
            known = {_without_time(m) for m in self.read().measurements}
            new = {w: m for m in measurements if (w := _without_time(m)) not in known}
            self._insert_rows("gemm", _COLUMNS, [_to_row(m) for m in new.values()])
        return len(new)

    def merge(
        self, products: Iterable[Measurement], operators: Iterable[OperatorMeasurement]
    ) -> int:
        """Adds the rows of another history that are not in this one; returns how many were new."""
        with self._transaction():
            here = set(self.read().measurements)
            rows = [_to_row(m) for m in dict.fromkeys(products) if m not in here]
            self._insert_rows("gemm", _COLUMNS, rows)
            known = set(self.read_operators().measurements)
            more = [operator_row(m) for m in dict.fromkeys(operators) if m not in known]
            self._insert_rows("operators", OPERATOR_COLUMNS, more)
        return len(rows) + len(more)

    def _insert_rows(
        self, table: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]
    ) -> None:
        names = ", ".join(f'"{c}"' for c in columns)
        marks = ", ".join("?" * len(columns))
        self._db.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)

    def read(self, platform: str | None = None) -> Read[Measurement]:
        """Measurements of products, optionally of one platform, in insertion order."""
        return self._read_rows("gemm", _COLUMNS, _from_row, platform)

    def read_operators(self, platform: str | None = None) -> Read[OperatorMeasurement]:
        """Like `read`, for operators of models."""
        return self._read_rows("operators", OPERATOR_COLUMNS, operator_measurement, platform)

    def read_orders(self, platform: str | None = None) -> Read[OrderMeasurement]:
        """Like `read`, for orders of operators."""
        return self._read_rows("orders", ORDER_COLUMNS, order_measurement, platform)

    def _read_rows(
        self,
        table: str,
        columns: Sequence[str],
        parse: Callable[[tuple[object, ...]], _M],
        platform: str | None,
    ) -> Read[_M]:
        names = ", ".join(f'"{c}"' for c in columns)
        where, values = ("WHERE platform = ?", (platform,)) if platform else ("", ())
        found: list[_M] = []
        skipped = 0
        with self._convert_errors():
            rows = self._db.execute(f"SELECT {names} FROM {table} {where} ORDER BY id", values)
            for row in rows:
                try:
                    found.append(parse(row))
                except (TypeError, ValueError):
                    skipped += 1
        return Read(found, skipped)

    def _use_journal(self) -> None:
        """Switches to write-ahead logging, once per file. SQLite does not wait for another program
        opening the new file at the same moment, so this retries."""
        ends = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > ends:
                    raise
                time.sleep(0.02)

    def _create_tables(self) -> None:
        if self._schema_version() == _VERSION:
            return  # without taking a lock: many open the history while one writes
        with self._transaction():
            version = self._schema_version()
            if version == _VERSION:
                return  # another program just created it
            if version:
                raise InputError(
                    f"{self.path}: expected a history of version {_VERSION}, found {version}; "
                    "move the file away to start a new one"
                )
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def _schema_version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._convert_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(
                f"{self.path}: expected a history that can be read and written, found: {error}; "
                "move the file away to start a new one"
            ) from None


def _without_time(m: Measurement) -> Measurement:
    return replace(m, when="", kit_version="")


def _to_row(m: Measurement) -> tuple[object, ...]:
    s, w = m.shape, m.method
    return (
        m.board, m.platform, m.dtype, m.threads, s.m, s.k, s.n, w.mc, w.kc, w.nc,
        int(w.pack_a), int(w.pack_b), w.mr, w.nr, w.split, m.cost, m.default_cost, m.spread,
        m.when, m.kit_version, m.source, m.unit, m.packed, m.cpu,
    )  # fmt: skip


def _from_row(row: tuple[object, ...]) -> Measurement:
    v = Values(_COLUMNS, row)
    integer, real = v.integer, v.real
    method = Method(
        integer("mc"), integer("kc"), integer("nc"),
        bool(integer("pack_a")), bool(integer("pack_b")),
        integer("mr"), integer("nr"), split_of(v.text("split")),
    )  # fmt: skip
    return Measurement(
        board=v.text("board"),
        platform=v.text("platform"),
        dtype=v.text("dtype"),
        threads=integer("threads"),
        shape=GemmShape(integer("m"), integer("k"), integer("n")),
        method=method,
        cost=real("cost"),
        default_cost=real("default_cost"),
        spread=real("spread"),
        when=v.text("when"),
        kit_version=v.text("kit_version"),
        source=v.text("source"),
        unit=v.text("unit"),
        packed=packed_of(v.text("packed")),
        cpu=v.text("cpu"),
    )

"""Queries of the store: one SELECT over its views, and nothing around them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles import ProfileStore, export, query
from edgekit.host.fleet.profiles.query import asking
from tests.support.profile_batches import named, stream

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    found = ProfileStore(tmp_path / "profiles")
    found.add("x", stream(1, 3))
    return found


@pytest.mark.parametrize(
    "sql",
    [
        "DESCRIBE operators",
        "SHOW batches",
        "SUMMARIZE operators",
        "FROM main.batches;",
        "VALUES (1)",
        "WITH q AS (FROM operators) SELECT name, count(*) FROM q, range(3) GROUP BY ALL",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) FROM t",
        "FROM (PIVOT operators ON name IN ('op0') USING sum(median_ns))",
        "SELECT unnest(list(DISTINCT name)) FROM operators",
    ],
)
def test_a_query_of_the_views_is_answered(store: ProfileStore, sql: str) -> None:
    assert query(store, sql, 100).rows


# Newer versions of Python parse as much JSON as DuckDB's own limit lets a query nest.
_TOO_DEEP = (
    [(f"SELECT {'1 + ' * 900}1", "a query that nests too deeply")]
    if sys.version_info < (3, 14)
    else []
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("COPY operators TO '{part}'", "another statement"),
        ("COPY (SELECT 1) TO '{part}' (FORMAT parquet)", "another statement"),
        ("EXPLAIN ANALYZE COPY operators TO '{part}'", "another statement"),
        ("FROM batches; COPY operators TO '{part}'", "another statement"),
        ("FROM batches; FROM batches", "2 statements"),
        ("", "0 statements"),
        ("ATTACH '{part}.db'", "another statement"),
        ("SET lock_configuration = false", "another statement"),
        ("CALL duckdb_settings()", "another statement"),
        ("PREPARE p AS FROM batches", "another statement"),
        ("FROM '{part}'", "table {part}"),
        ("FROM read_parquet('{part}')", "table function read_parquet"),
        ("SELECT (SELECT content FROM read_text('{part}'))", "table function read_text"),
        ("FROM operators WHERE EXISTS (FROM glob('/*'))", "table function glob"),
        ("FROM query('FROM ' || 'rows')", "table function query"),
        ("FROM rows", "table rows"),
        ("SHOW rows", "SHOW rows"),
        ("FROM duckdb_settings()", "table function duckdb_settings"),
        ("FROM pg_settings", "table pg_settings"),
        ("FROM information_schema.tables", "table tables"),
        (
            "FROM (WITH pg_settings AS (SELECT 1) FROM pg_settings), pg_settings",
            "WITH pg_settings, the name of another view",
        ),
        ("SELECT current_setting('secret_directory')", "function current_setting"),
        ("SELECT 'secret_directory'.current_setting()", "function current_setting"),
        ("SELEC", "syntax error"),
        ("SELECT nosuch FROM operators", "Binder Error"),
        *_TOO_DEEP,
    ],
)
def test_a_query_that_reaches_elsewhere_is_refused_and_the_store_is_as_it_was(
    store: ProfileStore, tmp_path: Path, sql: str, found: str
) -> None:
    (part,) = (store.folder / "parts").rglob("*.parquet")
    before = part.read_bytes()
    asked, why = sql.replace("{part}", str(part)), found.replace("{part}", str(part))
    for ask in (lambda: query(store, asked, 3), lambda: export(store, tmp_path / "o.csv", asked)):
        with pytest.raises(InputError, match="expected one SELECT over the views") as error:
            ask()
        assert f"found: {why}" in str(error.value)
        assert "\n" not in str(error.value)
    assert part.read_bytes() == before
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql", ["SELECT repeat('x', 3000000000)", "SELECT repeat('x', 100000000) FROM range(99)"]
)
def test_a_query_that_needs_more_memory_than_it_may_is_refused(
    store: ProfileStore, sql: str
) -> None:
    with pytest.raises(InputError, match="at most 1GB of memory"):
        query(store, sql, 100)
    assert query(store, "FROM batches", 100).rows


def test_no_answer_has_a_path(store: ProfileStore) -> None:
    shown = query(store, "SELECT * FROM operators, batches", 100)
    assert str(store.folder) not in repr(shown)


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1+1", "@SUM(A1)"])
def test_a_name_that_a_spreadsheet_would_run_is_text_in_csv(
    store: ProfileStore, tmp_path: Path, name: str
) -> None:
    store.add("evil", named(9, name))
    sql = "SELECT name, -1 AS below FROM operators WHERE board = 'evil'"
    assert export(store, tmp_path / "o.csv", sql) == 1
    assert (tmp_path / "o.csv").read_text() == f'"name","below"\n"\'{name}",-1\n'
    export(store, tmp_path / "o.json", sql)
    assert name in (tmp_path / "o.json").read_text()
    quoted = name.replace("'", "''")
    export(store, tmp_path / "enum.csv", f"SELECT '{quoted}'::ENUM('{quoted}') AS name")
    assert (tmp_path / "enum.csv").read_text() == f'"name"\n"\'{name}"\n'


def test_what_csv_cannot_hold_is_named(store: ProfileStore, tmp_path: Path) -> None:
    for sql in ("SELECT list(name) FROM operators", "SELECT INTERVAL 1 DAY"):
        with pytest.raises(InputError, match=r"expected numbers and text for CSV.* or write .json"):
            export(store, tmp_path / "o.csv", sql)
        assert not (tmp_path / "o.csv").exists()
        assert export(store, tmp_path / "o.json", sql) == 1


_ENDLESS = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(100000) b"


@pytest.mark.parametrize("where", ["query", "export", "asking"])
def test_sigint_ends_a_query(store: ProfileStore, tmp_path: Path, where: str) -> None:
    interruption = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    interruption.start()
    with pytest.raises(KeyboardInterrupt):
        if where == "query":
            query(store, _ENDLESS, 10)
        elif where == "export":
            export(store, tmp_path / "x.csv", _ENDLESS)
        else:
            with asking(store) as views:
                views.rows(_ENDLESS)
    interruption.join()


def test_sigint_while_the_thread_of_a_query_starts_ends_it(store: ProfileStore) -> None:
    def interrupt(frame: FrameType, event: str, _: object) -> None:
        starting = frame.f_code is threading.Event.wait.__code__ and frame.f_back
        if event == "call" and starting and starting.f_code is threading.Thread.start.__code__:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    with asking(store) as views:
        sys.setprofile(interrupt)
        with pytest.raises(KeyboardInterrupt):
            views.rows(_ENDLESS)
        assert views.rows("SELECT 1") == [(1,)]


def test_long_queries_print_no_progress(store: ProfileStore) -> None:
    with asking(store) as views:
        assert views.rows("SELECT current_setting('enable_progress_bar')") == [(False,)]

"""`edgekit profile`: from a board's spool to answers in SQL, as a user types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.device.agent.spool import Spool
from edgekit.host.paths import data_folder
from tests.support.profile_batches import batch

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


def test_a_profile_is_pulled_listed_asked_exported_and_forgotten(edgekit: Any, home: Path) -> None:
    spool = Spool(data_folder() / "boards" / "local" / "spool")
    for number in (3, 5):
        spool.add(batch(number))
    pulled = edgekit("profile", "pull", "--board", "local")
    assert (pulled.code, pulled.out) == (0, "pulled   2 batches with 4 rows from local\n")
    again = edgekit("profile", "pull", "--board", "local", "--json").document
    assert again["stored"]["new"] == 0
    assert "local  a57" in edgekit("profile", "list").out
    sql = "SELECT name, max(max_ns) FROM operators GROUP BY 1 ORDER BY 1"
    assert edgekit("profile", "query", sql, "--json").document["rows"] == [["op0", 5], ["op1", 5]]
    assert edgekit("profile", "export", "out.csv", "--json").document["rows"] == 4
    assert (home / "out.csv").read_text().startswith('"board",')
    assert edgekit("profile", "forget", "--days", "1").out == "removed  0 rows in 0 files\n"


def test_sampling_is_switched_off_with_one_line(edgekit: Any) -> None:
    assert edgekit("profile", "switch", "off", "--board", "local").code == 0
    assert "sampling is off" in edgekit("profile", "pull", "--board", "local").out


def test_bad_questions_are_one_line(edgekit: Any) -> None:
    for arguments, expected in (
        (("query", "SELEC"), "expected SQL over the views"),
        (("export", "out.xlsx"), "expected a name that ends in .parquet"),
        (("switch", "maybe", "--board", "local"), "expected on or off, found 'maybe'"),
    ):
        done = edgekit("profile", *arguments)
        assert done.code == 2
        assert expected in done.complaint


def test_an_empty_store_says_what_to_do(edgekit: Any) -> None:
    assert "edgekit profile pull" in edgekit("profile", "list").out

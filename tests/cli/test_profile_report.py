"""`edgekit profile report`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.reports import data_of, fill_store

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


def test_a_report_and_a_trace_are_written(edgekit: Any, home: Path) -> None:
    fill_store()
    done = edgekit("profile", "report", "--trace", "trace.json")
    assert done.code == 0 and done.out.startswith("wrote    report.html")
    assert "models 1, releases 2" in done.out
    (subject,) = data_of((home / "report.html").read_text())["subjects"]
    assert subject["model"] == "tiny"
    assert json.loads((home / "trace.json").read_text())["traceEvents"]
    document = edgekit("profile", "report", "-o", "other.html", "--json").document
    assert (document["file"], document["models"], document["trace"]) == ("other.html", 1, None)


def test_a_report_of_nothing_is_one_line_and_no_file(edgekit: Any, home: Path) -> None:
    done = edgekit("profile", "report")
    assert done.code == 2
    assert "expected profiles to report, found none; fetch some" in done.complaint
    assert not (home / "report.html").exists()


def test_a_page_that_cannot_be_written_is_named(edgekit: Any) -> None:
    fill_store()
    done = edgekit("profile", "report", "-o", "missing/report.html")
    assert (done.code, done.complaint.count("expected its folder to exist")) == (2, 1)

"""scripts/results.py: tables of pages from docs/results, and rows that scripts add."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

_SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(_SCRIPTS))
results = importlib.import_module("results")
sys.path.remove(str(_SCRIPTS))

_ROWS = [
    {"board": "rpi4", "threads": "1", "model": "a", "edgekit_ms": "1", "litert_ms": "2"},
    {"board": "rpi4", "threads": "1", "model": "b", "edgekit_ms": "4", "litert_ms": "2"},
    {"board": "rpi5", "threads": "1", "model": "a", "edgekit_ms": "1", "litert_ms": ""},
]
_FROM = {"machine": "estimated", "commit": "abc", "command": "scripts/performance"}
_FULL = [
    row | {"fastest_ratio": r} | _FROM for row, r in zip(_ROWS, ("2", "0.5", "3"), strict=True)
]


def test_what_the_repository_has_is_up_to_date():
    stale = [
        path.name
        for path, text in results.outputs()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run scripts/results.py"


def test_a_table_has_the_columns_and_rows_that_are_asked_for():
    page = (
        "before\n<!-- results: t.csv columns=model,litert_ms where=board:rpi4,model:b -->\n"
        "old\n<!-- end -->\nafter\n"
    )
    text = results.filled(page, {"t.csv": _FULL}, "page.md")
    assert text == (
        "before\n<!-- results: t.csv columns=model,litert_ms where=board:rpi4,model:b -->\n"
        "| model | LiteRT ms |\n| --- | ---: |\n| b | 2 |\n\n[t.csv](results/t.csv)\n"
        "<!-- end -->\nafter\n"
    )
    assert results.filled(text, {"t.csv": _FULL}, "page.md") == text


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("none.csv", "expected a file of docs/results, found none.csv"),
        ("t.csv columns=speed", "t.csv has no column speed"),
        ("t.csv where=speed:1", "t.csv has no column speed"),
    ],
)
def test_a_marker_that_makes_no_sense_is_named(mark: str, expected: str):
    page = f"<!-- results: {mark} -->\n<!-- end -->\n"
    with pytest.raises(results.ResultsError, match=expected):
        results.filled(page, {"t.csv": _FULL}, "page.md")


def test_the_summary_has_geometric_means_and_the_lowest_ratio_of_each_board():
    alone = _FULL[0] | {"board": "orangepi-pc", "litert_ms": "", "fastest_ratio": ""}
    first, second = results.summary([*_FULL, alone])  # no engine runs there
    assert (first["models"], first["fastest_engine"], first["litert"]) == ("2", "1.00", "1.00")
    assert (first["lowest"], first["lowest_model"]) == ("0.50", "b")
    assert (second["board"], second["litert"], second["fastest_engine"]) == ("rpi5", "", "3.00")


def test_a_recorded_row_takes_the_place_of_the_one_with_its_key(tmp_path):
    for ms in ("1", "2"):
        results.record(
            "t.csv",
            [{"model": "a", "ms": ms}, {"model": f"only in run {ms}", "ms": ms}],
            ("model",),
            ("a machine", "a command"),
            tmp_path,
        )
    rows = results.read(tmp_path / "t.csv")
    assert [(row["model"], row["ms"]) for row in rows] == [
        ("a", "2"),
        ("only in run 1", "1"),
        ("only in run 2", "2"),
    ]
    assert {row["machine"] for row in rows} == {"a machine"}


def test_a_file_without_its_source_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("model,ms\na,1\n")
    with pytest.raises(results.ResultsError, match="expected the last columns machine, commit"):
        results.read(tmp_path / "t.csv")

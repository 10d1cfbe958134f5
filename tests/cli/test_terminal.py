"""Tables are drawn on a terminal; any other output is plain lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.places import few_or_all
from tests.support.terminal import shown_on_terminal


def test_table_is_drawn() -> None:
    shown = shown_on_terminal("boards")
    assert "─" in shown
    assert "a57" in shown


def test_json_is_the_same_on_a_terminal() -> None:
    assert shown_on_terminal("boards", "--json").startswith("{\r\n")


@pytest.mark.slow
def test_spinner_goes_away() -> None:
    shown = shown_on_terminal("doctor")
    assert "compiles and runs C" in shown
    assert "..." not in shown


@pytest.mark.slow
def test_deploy_draws_its_states(face_model: Path) -> None:
    shown = shown_on_terminal("deploy", str(face_model.with_name("okay_nabu.tflite")))
    assert "deploying to local: " in shown
    assert " ...\r\n" not in shown
    assert "? bytes" not in shown
    assert "golden output matched" in shown


@pytest.mark.slow
def test_the_failure_of_a_board_is_shown_once(tmp_path: Path) -> None:
    file = tmp_path / "boards.csv"
    file.write_text("name,host\npi-1,127.0.0.1:1\n")
    shown = shown_on_terminal("fleet", "add", "--csv", str(file), "--yes", code=8)
    assert shown.count("expected an SSH server") == 1


def _lines(shown: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r", "\n").splitlines()


def _widest(shown: str) -> int:
    lines = _lines(shown)
    return max(len(line.rstrip()) for line in lines if "conv" in line or "cortex" in line)


@pytest.mark.slow
@pytest.mark.parametrize("columns", few_or_all([80, 72], [72]))
def test_tables_fit_a_narrow_terminal(columns: int, face_model: Path) -> None:
    """Columns that repeat go, then the middle of long names; both ends tell them apart."""
    boards = shown_on_terminal("boards", columns=80)
    assert _widest(boards) <= 80
    assert "ARM Cortex-A57 (Jetson TX1/Nano class)" in boards
    small = str(face_model.with_name("okay_nabu.tflite"))
    shown = shown_on_terminal("bench", "model", small, "--runs", "3", columns=columns)
    assert _widest(shown) <= columns
    assert "kernel" in shown and "kind" not in shown and "…" in shown
    names = [line.split()[0] for line in shown.splitlines() if "…" in line]
    assert len(set(names)) == len(names) or columns < 80


def _query(row: dict[str, str]) -> str:
    pytest.importorskip("duckdb")
    sql = ", ".join(f"'{value}' AS \"{name}\"" for name, value in row.items())
    return shown_on_terminal("profile", "list", f"SELECT {sql}", columns=80)


@pytest.mark.slow
def test_columns_of_words_give_way() -> None:
    row = {"name": 37 * "n", "estimated µs": "0.2", "MMACs": "0.0000640"}
    shown = _query({**row, "peak": "11%", "bound by": "store unit"})
    assert "estimated" in shown and "estimated µs" not in shown
    assert max(map(len, _lines(shown))) <= 80


@pytest.mark.slow
def test_rows_that_do_not_fit_are_lists() -> None:
    shown = _query({f"column {number}": 12 * "x" for number in range(9)})
    assert [line.split() for line in shown.splitlines() if line][8] == ["column", "8", 12 * "x"]


@pytest.mark.exhaustive
def test_on_a_wide_terminal_nothing_goes(face_model: Path) -> None:
    small = str(face_model.with_name("okay_nabu.tflite"))
    shown = shown_on_terminal("bench", "model", small, "--runs", "3", columns=160)
    assert "kind" in shown and "…" not in shown

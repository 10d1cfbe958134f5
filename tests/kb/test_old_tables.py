"""GEMM tables of an older edgekit: read as they are, and the user's own written anew once."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.compiler.tables.gemm import table_of, user_table
from edgekit.kb.costs.rule import LARGEST
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.tables.gemm_file import KnowledgeBaseError, is_old, load_table, table_text
from edgekit.kb.tables.gemm_table import Row
from edgekit.kb.tables.method import Method, analytic_method
from edgekit.kb.tables.operators import OperatorMethod
from edgekit.kb.targets.board import load_board

_METHOD = Method(256, 128, 512, False, True, 8, 12)
_GOOD, _NEAR, _FAR = GemmShape(500, 1600, 30), GemmShape(50, 7, 11), GemmShape(1, 1, 2000)


def _row(shape: GemmShape, method: Method | None, **more: Any) -> dict[str, Any]:
    key = key_of(shape, 0, Sequences(), packed="b")
    return {
        "key": {k: v for k, v in asdict(key).items() if k != "form"},
        "method": method and asdict(method),
        "shape": asdict(shape),
        "source": "tuner",
        "history_rows": 3,
        "ratio": 0.7 if method else 1.0,
        "gflops": 2.5,
        "relaxes": True,
        **more,
    }


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    head = {
        "schema": "edgekit.kb.gemm/1",
        "platforms": ["cortex-a57"],
        "sequences": asdict(Sequences()),
        "priority": ["scale", "m", "n", "k"],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, "rows": rows}))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the user's table of a57 is: named by its profile in an older edgekit."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    return tmp_path / "gemm/a57.json"


def test_rows_that_only_repeat_the_analytic_rule_are_not_taken_over(tmp_path):
    path = tmp_path / "old.json"
    alone = [_row(_GOOD, None), _row(_NEAR, None)]
    _write(path, alone)
    assert is_old(path) and load_table(path).rows == ()
    _write(path, [_row(_GOOD, _METHOD, cpu="some", reach=30), _row(_NEAR, None)])
    good, near = sorted(load_table(path).rows, key=lambda row: row.method is None)
    key = key_of(_GOOD, 0, Sequences(), packed="b")
    assert good == Row(key, _METHOD, _GOOD, "tuner", 3, 0.7, 2.5, True, "some", 30)
    assert near.shape == _NEAR and near.method is None  # its neighbor's would be taken


def test_a_user_s_old_table_is_written_anew_once_and_answers_alike(own, caplog):
    board = load_board("a57")
    _write(own, [_row(_GOOD, _METHOD), _row(_NEAR, None)])
    before = load_table(own)
    for shape, wanted in ((_GOOD, _METHOD), (_NEAR, None)):
        answer = table_of(board).choose(board, shape, packed="b")
        assert answer.method == (wanted or analytic_method(board, shape, packed="b"))
    renamed, renewed = caplog.messages
    assert "named cortex-a57.json" in renamed and "written anew" in renewed and "2 rows" in renewed
    path = user_table(board)
    assert path.name == "cortex-a57.json" and not own.exists() and not is_old(path)
    assert load_table(path) == before and path.read_text() == table_text(before)


def test_a_damaged_old_table_is_one_line(own):
    _write(own, [_row(_GOOD, _METHOD)])
    own.write_text(own.read_text().replace('"tie": "low"', '"tie": "left"'))
    with pytest.raises(KnowledgeBaseError, match=r"a57\.json: expected a GEMM table") as error:
        load_table(own)
    assert "\n" not in str(error.value)


def test_odd_rows_of_an_old_table_are_skipped_and_counted(tmp_path):
    path = tmp_path / "old.json"
    odd = _row(_GOOD, _METHOD)
    odd["key"] = {**odd["key"], "platform": 9}
    _write(path, [odd, _row(_FAR, _METHOD, reach=0), _row(_NEAR, _METHOD)])
    table = load_table(path)
    assert (len(table.skipped), [row.shape for row in table.rows]) == (2, [_NEAR])


_COLUMNS = ["dtype", "threads", "packed", "m", "k", "n", "method", "source", "history_rows",
            "relaxes", "ratio", "gflops", "radius", "cpu", "platform"]  # fmt: skip
_OPERATOR_COLUMNS = ["form", "dtype", "threads", "m", "k", "n", "method", "source", "ratio",
                     "radius", "platform"]  # fmt: skip


def _ungrouped(version: int, **lists: Any) -> str:
    """A table of form 2 or 3."""
    head = {
        "schema": f"edgekit.kb.gemm/{version}",
        "platforms": ["cortex-a57", "cortex-a72"],
        "sequences": asdict(Sequences()),
        "priority": ["scale", "m", "n", "k"],
        "cpus": ["", "some"],
        "columns": _COLUMNS,
        "operator_columns": _OPERATOR_COLUMNS,
    }
    return json.dumps({**head, **lists})


def test_a_table_with_sources_in_its_rows_says_the_same(tmp_path):
    """Version 2 of the form: sources as words, blocks in full, families of operators first."""
    rows = [["f32", 1, "b", 1, 64, 64, [LARGEST, 16, 32, "a", 1, 32, "m"], "tuner", 4, False, 0.5]]
    operators = [
        ["conv3s1", "f32", 1, 64, 72, 16, ["winograd", 4, 16, "m"], "estimate", 0.9, 100],
        ["depthwise3s1", "s8", 1, 64, 9, 16, ["depthwise", 1, 8, "m"], "estimate", 0.9, 100],
        ["dense", "f32", 1, 1, 64, 10, "analytic", "estimate", 1.0, 100],
    ]
    path = tmp_path / "table.json"
    path.write_text(_ungrouped(2, rows=rows, operators=operators))
    old = load_table(path)
    assert is_old(path) and old.skipped == () and [r.source for r in old.rows] == ["tuner"]
    (row,) = old.rows
    assert row.method == Method(LARGEST, 16, 32, True, False, 1, 32, "m")
    assert (row.history_rows, row.relaxes, row.ratio, row.gflops) == (4, False, 0.5, None)
    assert {r.method.family for r in old.operators if r.method} == {"winograd", "depthwise"}
    path.write_text(table_text(old))
    new = load_table(path)
    assert new.rows == old.rows and new.operators == old.operators and not is_old(path)
    assert '"edgekit.kb.gemm/4"' in path.read_text()


def test_a_table_without_groups_says_the_same(tmp_path):
    """Version 3 of the form: all that a row says in the row, sources and CPUs as positions."""
    rows = [
        ["f32", 1, "b", 1, 64, 64, [0, 16, 32, "a", 1, 32, "n"], 1, 4, 0, 0.5, 7.5, 30, 1, 1],
        ["s8", 2, "none", 64, 64, 64, "analytic", 1, 9],
        ["f32", 1, "b", 99, 64, 64, "analytic", 2, 9],  # a source that is not there
        ["f32", 1, "b", 98, 64, 64, "analytic", 0, 9, 1, 1.0, 0, 0, 2],  # a CPU
        ["f32", 1, "b", 97, 64, 64, "analytic", 0, 9, 1, 1.0, 0, 0, 0, -1],  # a platform
        ["f32", 1, "b"],
        7,
    ]
    operators = [
        ["conv3s1", "f32", 1, 64, 72, 16, [4, 16, "m", "winograd"], 0, 0.9, 100],
        ["conv1s1", "s8", 4, 64, 16, 16, "analytic", 0, 1.0, 426, 1],
        ["conv1s1", "s8", 4, 64, 16],
    ]
    path = tmp_path / "table.json"
    path.write_text(_ungrouped(3, sources=["estimate", "tuner"], rows=rows, operators=operators))
    old = load_table(path)
    assert is_old(path) and len(old.skipped) == 6
    second, first = sorted(old.rows, key=lambda row: row.method is not None)
    method = Method(LARGEST, 16, 32, True, False, 1, 32, "n")
    key = key_of(first.shape, 1, Sequences(), packed="b")
    assert first == Row(key, method, first.shape, "tuner", 4, 0.5, 7.5, False, "some", 30)
    assert (second.method, second.source, second.ratio, second.relaxes) == (
        None,
        "tuner",
        None,
        True,
    )
    assert second.key == key_of(GemmShape(64, 64, 64), 0, Sequences(), "s8", 2)
    how = {row.key.form: (row.method, row.source, row.radius, row.key) for row in old.operators}
    assert how["conv3s1"][0] == OperatorMethod("winograd", "f32", 4, 16)
    assert how["conv1s1"][:3] == (None, "estimate", 426)
    assert (how["conv1s1"][3].platform, how["conv1s1"][3].threads) == (1, 4)
    path.write_text(table_text(old))
    assert load_table(path) == replace(old, skipped=())


def test_an_old_table_of_other_columns_is_one_line(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(_ungrouped(3, rows=[]).replace('"relaxes"', '"relax"'))
    with pytest.raises(
        KnowledgeBaseError, match=r"table\.json: expected a GEMM table.*relax,"
    ) as e:
        load_table(path)
    assert "\n" not in str(e.value)

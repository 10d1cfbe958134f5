"""edgekit lab kb: lookups, tables, diffs, imports, and errors for bad ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.compiler.tables.gemm_file import load_table, table_text
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase
from edgekit.host.compiler.tables.spmv import spmv_table_of
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.csv_import import REQUIRED
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.tables.paths import shipped_folder
from edgekit.kb.targets.board import load_board

_METHOD = Method(256, 128, 128, False, False, 8, 4)
_SHAPE = GemmShape(m=500, k=1600, n=30)


def measured(shape: GemmShape = _SHAPE, cost: float = 1e-3, **changes: Any) -> Measurement:
    made = Measurement(
        "a57", "cortex-a57", "f32", 1, shape, _METHOD, cost, 2e-3, 0.0, "now", "0.1.0", "tuner"
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table for a57 with one row."""
    row = GemmRow(key_of(_SHAPE, 0, Sequences()), _METHOD, _SHAPE, "tuner", 3, 0.5, 1.0)
    path = tmp_path / "table.json"
    path.write_text(table_text(KnowledgeBase(("cortex-a57",), rows=(row,))))
    return path


def test_lookup_gives_the_document_of_the_contract(edgekit: Any, table: Path) -> None:
    done = edgekit(
        "lab", "kb", "lookup", "--board", "a57", "--gemm", "500,1600,30", "--table", table, "--json"
    )
    assert (done.code, done.err) == (0, "")
    found = done.document
    assert found["schema"] == "edgekit.kb.lookup/1"
    assert found["key"] == {"platform": 0, "m": 2, "k": 4, "n": 0, "scale": 1}
    assert (found["rule"], found["history_rows"]) == ("exact", 3)
    assert found["method"] == dataclasses.asdict(_METHOD)


def test_lookup_says_the_rule(edgekit: Any, table: Path) -> None:
    for gemm, options, rule in (
        ("50,7,11", ("--table", table), "relaxed:"),
        ("50,7,11", ("--table", table, "--dtype", "s8"), "analytic"),
    ):
        done = edgekit("lab", "kb", "lookup", "--board", "a57", "--gemm", gemm, *options)
        assert done.code == 0 and f"rule     {rule}" in done.out


@pytest.mark.parametrize(
    "gemm", ["1,2", "1,2,x", "-1,2,3", "1,2,3,4", "", "1,2,99999999999", "0,2,3", "1,2,0"]
)
def test_a_bad_shape_is_one_line(gemm: str, edgekit: Any) -> None:
    done = edgekit("lab", "kb", "lookup", f"--gemm={gemm}")
    assert done.code == 2 and "--gemm: expected" in done.complaint and done.out == ""


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda text: text[:50], "restore it"),
        (lambda text: text.replace("gemm/1", "gemm/3"), "found edgekit.kb.gemm/3; remove it"),
        (lambda text: "\0", "restore it"),
    ],
)
def test_a_bad_table_is_one_line(damage: Any, word: str, edgekit: Any, table: Path) -> None:
    table.write_text(damage(table.read_text()))
    for options in (("--gemm", "1,2,3"), ()):
        done = edgekit("lab", "kb", "lookup", *options, "--table", table)
        assert done.code == 2 and word in done.complaint and done.out == ""


def test_an_unknown_board_is_one_line(edgekit: Any) -> None:
    done = edgekit("lab", "kb", "lookup", "--board", "nosuch", "--gemm", "1,2,3")
    assert done.code == 2 and "nosuch" in done.complaint and "edgekit boards" in done.complaint


def test_lookup_without_a_product_lists_rows_and_counts_foreign_ones(
    edgekit: Any, table: Path
) -> None:
    content = json.loads(table.read_text())
    ((_, rows),) = content["groups"]
    rows.append([*rows[0], *[0] * 9])
    table.write_text(json.dumps(content))
    done = edgekit("lab", "kb", "lookup", "--board", "a57", "--table", table, "--json")
    assert done.document["skipped"] == 1 and len(done.document["rows"]) == 1
    assert "1 of 2 rows are not used; the first, [" in done.err
    plain = edgekit("lab", "kb", "lookup", "--board", "a57", "--table", table).out
    assert "the default ones" in plain and "256 x 128 x 128" in plain
    refused = edgekit("lab", "kb", "lookup", "--threads", "2")
    assert refused.code == 2 and "expected --gemm with --threads, found none" in refused.complaint


def test_diff_names_what_changed(edgekit: Any, table: Path, tmp_path: Path) -> None:
    content = json.loads(table.read_text())
    ((_, rows),) = content["groups"]
    rows[0][3][0] = 512
    other = tmp_path / "other.json"
    other.write_text(json.dumps(content))
    done = edgekit("lab", "kb", "lookup", "--against", table, "--table", other)
    assert done.code == 0 and done.out.startswith("~ 500,1600,30") and "512" in done.out
    assert (
        len(
            edgekit("lab", "kb", "lookup", "--against", table, "--table", other, "--json").document[
                "changed"
            ]
        )
        == 1
    )
    assert (
        "0 changed, 1 the same"
        in edgekit("lab", "kb", "lookup", "--against", table, "--table", table).out
    )


def test_diff_tells_rows_of_operators(edgekit: Any, tmp_path: Path) -> None:
    kit = shipped_folder("gemm") / "cortex-a53.json"
    table = load_table(kit)
    first = next(row for row in table.operators if row.method is not None)
    rest = [row for row in table.operators if row is not first]
    other = tmp_path / "other.json"
    changed = (dataclasses.replace(first, method=None), *rest[1:])
    other.write_text(table_text(dataclasses.replace(table, operators=changed)))
    done = edgekit("lab", "kb", "lookup", "--against", kit, "--table", other)
    s, form = first.shape, first.key.form
    assert f"~ {form} {s.m},{s.k},{s.n} " in done.out and "-> the rule without a row" in done.out
    assert f"- {rest[0].key.form} " in done.out
    same = len(table.rows) + len(rest) - 1
    assert done.out.endswith(f"0 added, 1 removed, 1 changed, {same} the same\n")
    document = edgekit("lab", "kb", "lookup", "--against", kit, "--table", other, "--json").document
    assert document["changed"][0]["old"]["key"]["form"] == form and len(document["removed"]) == 1


def test_build_makes_the_same_bytes_and_is_used(edgekit: Any, tmp_path: Path) -> None:
    with History() as history:
        history.add([measured(), measured(cost=1.5e-3, method=dataclasses.replace(_METHOD, mc=8))])
    first = tmp_path / "first.json"
    done = edgekit("lab", "kb", "build", "--board", "a57", "--no-base", "-o", first, "--json")
    assert done.document["schema"] == "edgekit.kb.build/1"
    assert (done.document["rows"], done.document["measurements"]) == (1, 2)
    second = tmp_path / "second.json"
    edgekit("lab", "kb", "build", "--board", "a57", "--no-base", "-o", second)
    assert first.read_bytes() == second.read_bytes()
    over = edgekit("lab", "kb", "build", "--board", "a57", "--json").document
    assert over["rows"] - over["rows_kept"] == 1 and over["operators_kept"] == over["operators"]
    text = edgekit("lab", "kb", "build", "--board", "a57").out
    assert f": 1 row from 2 measurements, {over['rows_kept']} of edgekit's own\n" in text
    assert f"operators  {over['operators']} rows of edgekit's own, none measured here\n" in text
    answer = edgekit(
        "lab", "kb", "lookup", "--board", "a57", "--gemm", "500,1600,30", "--json"
    ).document
    assert (answer["rule"], answer["method"]["mc"]) == ("exact", 256)


def test_build_says_that_no_answer_changes(edgekit: Any, tmp_path: Path) -> None:
    usual = analytic_method(load_board("a57"), _SHAPE).cut(_SHAPE)
    with History() as history:
        history.add([measured(cost=2e-3, method=usual)])
    build = ("lab", "kb", "build", "--board", "a57", "--no-base", "-o", tmp_path / "table.json")
    text = edgekit(*build).out
    assert ": 0 rows from 1 measurement (no answer changes)\n" in text


def test_build_leaves_out_ratios_to_another_default(edgekit: Any, tmp_path: Path) -> None:
    usual = analytic_method(load_board("a57"), _SHAPE).cut(_SHAPE)
    past = dataclasses.replace(_METHOD, mc=8)
    build = ("lab", "kb", "build", "--board", "a57", "--no-base", "-o", tmp_path / "table.json")
    with History() as history:
        history.add([measured(), measured(method=past, cost=2e-3)])
        refused = edgekit(*build)
        assert refused.code == 2 and "found 2 that compare with another default" in refused.err
        history.add(
            measured(method=how, cost=cost, default_cost=3e-3)
            for how, cost in ((usual, 3e-3), (past, 2e-3))
        )
    done = edgekit(*build, "--json")
    assert (done.document["measurements"], done.document["outdated"]) == (2, 2)
    assert "compare with another default, left out: 2" in done.err
    assert [row.ratio for row in load_table(tmp_path / "table.json").rows] == [0.667]


def test_build_tells_of_rows_that_no_measurement_explains(edgekit: Any, home: Path) -> None:
    with History() as history:
        history.add([measured()])
    build = ("lab", "kb", "build", "--board", "a57")
    first = edgekit(*build, "--json")
    assert (first.document["rows_dropped"], first.document["previous"], first.err) == (0, None, "")
    path = Path(first.document["file"])
    made = load_table(path)
    shape = GemmShape(m=7, k=11, n=5)
    other = GemmRow(key_of(shape, 0, made.sequences), _METHOD, shape, "import")
    path.write_text(table_text(made.with_rows([*made.rows, other])))
    before = path.read_bytes()
    again = edgekit(*build, "--json")
    assert again.document["rows_dropped"] == 1
    assert Path(again.document["previous"]).read_bytes() == before
    assert f"{path}: dropped 1 rows that no measurement in the history explains" in again.err
    assert edgekit(*build).err == ""


def test_build_without_history_says_what_to_do(edgekit: Any) -> None:
    done = edgekit("lab", "kb", "build", "--board", "a72", "--no-base")
    assert done.code == 2 and "edgekit lab tune gemm --board a72" in done.complaint
    assert "expected --import with --skip-bad" in edgekit("lab", "kb", "build", "--skip-bad").err


_GOOD = "a57,cortex-a57,f32,1,64,32,16,64,256,512,1,0,8,8,0.001,0.002"


def _csv(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "past.csv"
    path.write_text("\n".join([",".join(REQUIRED), *rows]) + "\n")
    return path


def test_import_is_all_or_nothing(edgekit: Any, tmp_path: Path) -> None:
    file = _csv(tmp_path, _GOOD, _GOOD.replace("0.001", "nan"))
    build = ("lab", "kb", "build", "--board", "a57", "--no-base", "-o", tmp_path / "table.json")
    done = edgekit(*build, "--import", file)
    assert done.code == 2 and "line 3: expected seconds" in done.complaint
    with History() as history:
        assert history.read().measurements == []
    assert not (tmp_path / "table.json").exists()
    first = edgekit(*build, "--import", file, "--skip-bad", "--json").document
    assert (first["imported"]["new"], len(first["imported"]["refused"])) == (1, 1)
    assert (first["rows"], first["measurements"]) == (1, 1)
    again = edgekit(*build, "--import", file, "--skip-bad")
    assert "imported   0 measurements, 1 known before, 1 refused\n" in again.out
    assert "left out line 3: expected seconds" in again.err
    with History() as history:
        assert [m.source for m in history.read().measurements] == ["import"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"", b"m,k,n\n1,2,3\n"])
def test_import_refuses_a_file_that_is_not_csv(
    edgekit: Any, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "past.csv"
    if content is not None:
        file.write_bytes(content)
    done = edgekit("lab", "kb", "build", "--import", file)
    assert done.code == 2 and "past.csv: expected" in done.complaint
    assert "Errno" not in done.complaint


def test_boards_says_how_many_rows_there_are(edgekit: Any) -> None:
    before = {
        b["name"]: b["knowledge_base_rows"]
        for b in edgekit("boards", "--json").document["profiles"]
    }
    shapes = [GemmShape(m=7, k=11, n=n) for n in (3, 30, 300)]
    with History() as history:
        history.add([measured(shape) for shape in shapes])
    assert edgekit("lab", "kb", "build", "--board", "a57", "--no-base").code == 0
    after = {
        b["name"]: b["knowledge_base_rows"]
        for b in edgekit("boards", "--json").document["profiles"]
    }
    sparse = len(spmv_table_of(load_board("a57")).rows)
    assert after["a57"] == len(shapes) + sparse and after["a72"] == before["a72"]


def test_a_class_of_machines_has_a_table_too(edgekit: Any) -> None:
    done = edgekit("lab", "kb", "lookup", "--board", "x86-64-v3", "--gemm", "64,64,64", "--json")
    assert done.code == 0 and done.document["board"] == "x86-64-v3"

"""Sequences learned from a history, and building a board's table."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.compiler.costs.methods.operators import Form
from edgekit.host.compiler.tables.gemm_file import board_table, load_table, table_text
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.tune.build import build_table
from edgekit.host.lab.tune.learn import learn_sequences, regret_of
from edgekit.kb.features import GemmShape, Sequences
from edgekit.kb.tables.paths import shipped_folder, table_name
from edgekit.kb.targets.board import board_names, load_board

_SMALL, _LARGE = Method(8, 64, 64, False, False, 4, 8), Method(96, 64, 64, False, False, 12, 8)


def measured(m: int, method: Method, ratio: float, unit: str = "seconds") -> Measurement:
    shape = GemmShape(m, 61, 67)
    return Measurement(
        "b", "core", "f32", 1, shape, method, ratio, 1.0, 0.0, "now", "0.1.0", "tuner", unit
    )


def two_kinds(border: int) -> list[Measurement]:
    """One method is best for products with m below the border, another for the rest."""
    rows = range(1, 30)
    good = [measured(m, _SMALL if m < border else _LARGE, 0.5) for m in rows]
    return good + [measured(m, _LARGE if m < border else _SMALL, 1.0) for m in rows]


def test_denser_sequences_are_taken_where_they_help():
    history = two_kinds(border=4)
    learned, regret = learn_sequences(history)
    assert learned != Sequences()
    assert regret == regret_of(learned, history)
    assert regret.mean < regret_of(Sequences(), history).mean


def test_the_default_sequences_stay_without_a_gain():
    assert learn_sequences(two_kinds(border=0))[0] == Sequences()
    assert learn_sequences(two_kinds(border=4)[:3])[0] == Sequences()


def test_the_order_of_the_history_does_not_matter():
    history = two_kinds(border=4)
    assert learn_sequences(history[::-1]) == learn_sequences(history)


def test_operators_keep_their_keys_when_products_get_denser_sequences(tmp_path: Path):
    board = load_board("rpi4")
    base = load_table(shipped_folder("gemm") / table_name(board.platform))
    learned, _ = learn_sequences(two_kinds(border=4))
    table = build_table((), (), learned, base)
    assert table.sequences == learned != base.sequences
    assert set(table.operators) == set(base.operators)
    assert {row.shape for row in table.rows} <= {row.shape for row in base.rows}
    path = tmp_path / "t.json"
    path.write_text(table_text(table))
    read = load_table(path)
    assert (read.rows, set(read.operators)) == (table.rows, set(table.operators))
    form = next(row for row in base.operators if row.method)
    wanted = Form(form.key.form, form.shape, form.key.dtype)
    found = read.operator_row(board.platform, wanted, form.key.threads)
    assert found == base.operator_row(board.platform, wanted, form.key.threads)

    path.write_text(table_text(replace(table, operators=())))  # rows of operators may come later
    assert load_table(path).for_operators == base.for_operators


def test_learned_sequences_are_in_the_file(tmp_path: Path):
    history = two_kinds(border=4)
    table = build_table(history, sequences=learn_sequences(history)[0])
    path = tmp_path / "t.json"
    path.write_text(table_text(table))
    assert load_table(path) == table
    assert json.loads(path.read_text())["sequences"]["m"][:3] == list(table.sequences.m[:3])


def test_times_decide_over_counts():
    history = [measured(5, _SMALL, 0.9), measured(5, _LARGE, 0.5, "instructions")]
    row = build_table(history).rows[0]
    assert (row.method, row.source, row.history_rows) == (_SMALL, "tuner", 1)
    counted = build_table(history[1:]).rows[0]
    assert (counted.source, counted.gflops, counted.ratio) == ("instructions", None, 0.5)


def test_a_table_grows_over_its_base():
    base = build_table([measured(5, _SMALL, 0.9), measured(100, _SMALL, 0.8)])
    grown = build_table([measured(5, _LARGE, 0.7)], base=base)
    assert {row.shape.m: row.method for row in grown.rows} == {5: _LARGE, 100: _SMALL}
    dense = Sequences(m=(1, 2, 4, 8, 16, 32, 64, 128))
    again = build_table([measured(5, _LARGE, 0.7)], sequences=dense, base=base)
    assert len(again.rows) == 2 and again.sequences == dense


@pytest.mark.parametrize("name", board_names())
def test_every_board_answers(name: str):
    board = load_board(name)
    shape = GemmShape(2, 3, 5)
    table = board_table(board)
    assert board.platform in table.platforms and table.skipped == ()
    assert table.choose(board, shape).method.mr >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted(shipped_folder("gemm").glob("*.json")), ids=lambda path: path.stem
)
def test_a_shipped_table_says_where_each_row_comes_from(path: Path):
    table = load_table(path)
    assert table_text(table) == path.read_text() and table.skipped == ()
    assert table.rows or table.operators
    assert table.platforms == (path.stem,)
    measured_here = path.stem.startswith("x86")
    for row in table.rows:
        assert row.source in (("tuner",) if measured_here else ("instructions", "estimate"))
        assert (row.gflops is not None) == measured_here and row.history_rows > 0
        assert bool(row.cpu) == measured_here
    assert all(row.source == "estimate" for row in table.operators)


def test_the_first_folder_with_a_table_is_used(tmp_path: Path):
    board = load_board("a57")
    of_core = build_table([measured(5, _SMALL, 0.9)])
    of_two = replace(of_core, platforms=(*of_core.platforms, board.platform))
    (tmp_path / table_name(board.platform)).write_text(table_text(of_two))
    found = board_table(board, tmp_path / "nothing", tmp_path)
    assert found.platforms == ("core", "cortex-a57") and len(found.rows) == 1
    shape = GemmShape(5, 61, 67)
    assert found.choose(board, shape).method == analytic_method(board, shape)


def test_a_method_that_its_neighbors_do_without_does_not_relax():
    odd, others = 10, range(5, 16)
    lone = [measured(m, _SMALL, 0.5 if m == odd else 2.0) for m in others]
    history = [*lone, *(measured(m, _LARGE, 1.0) for m in others)]
    dense = Sequences(m=tuple(others))
    rows = {row.shape.m: row for row in build_table(history, sequences=dense).rows}
    assert rows[odd].method == _SMALL and not rows[odd].relaxes
    alike = replace(_SMALL, mr=_SMALL.mr + 1)
    untried = [
        measured(odd, _SMALL, 0.5),
        *(measured(m, alike, 0.5) for m in others if m != odd),
        *(measured(m, _LARGE, 1.0) for m in others),
    ]
    rows = {row.shape.m: row for row in build_table(untried, sequences=dense).rows}
    assert rows[odd].method == _SMALL and not rows[odd].relaxes
    together = [
        *(measured(m, _SMALL, 0.5) for m in others),
        *(measured(m, _LARGE, 1.0) for m in others),
    ]
    assert all(row.relaxes for row in build_table(together, sequences=dense).rows)


def test_a_newer_kit_takes_the_place_of_an_older_one():
    old = [dataclasses.replace(measured(5, _SMALL, 0.1), kit_version="0.9.0")]
    new = [dataclasses.replace(measured(5, _LARGE, 0.9), kit_version="0.10.0")]
    assert [row.method for row in build_table(new + old).rows] == [_LARGE]

"""Features, index values and lookup: the worked examples, and the order of preference."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase, OperatorRow
from edgekit.kb.features import (
    DEFAULT_SHAPE_SEQUENCE,
    GemmKey,
    GemmShape,
    Sequences,
    index_of,
    key_of,
)

_DEFAULT = Method(64, 64, 64, False, True, 8, 8)
_SIZES = st.integers(0, 5000)


def method(mc: int) -> Method:
    return Method(mc, 128, 128, False, False, 8, 4)


def row(shape: GemmShape, mc: int, threads: int = 1, gflops: float | None = None) -> GemmRow:
    key = key_of(shape, 0, Sequences(), threads=threads)
    return GemmRow(key, method(mc), shape, "tuner", 3, 0.9, gflops)


def table(*rows: GemmRow, **options: object) -> KnowledgeBase:
    return KnowledgeBase(("cortex-a57",), rows=rows, **options)  # type: ignore[arg-type]


def test_the_worked_example_of_ratios():
    assert [index_of(v, DEFAULT_SHAPE_SEQUENCE) for v in (500, 3, 20)] == [5, 0, 2]
    assert index_of(1, (1, 10, 100, 1000)) == 0


def test_the_worked_example_of_a_whole_key():
    shape = GemmShape(m=500, k=1600, n=30)
    assert shape.scale == 10
    assert shape.ratios == GemmShape(m=50, k=160, n=3)
    key = key_of(shape, 0, Sequences())
    assert key == GemmKey(platform=0, m=2, k=4, n=0, scale=1)


def test_the_caller_chooses_how_ties_are_broken():
    assert index_of(55, (30, 80)) == 0
    assert index_of(55, (30, 80), tie="high") == 1


@given(st.integers(0, 10_000), st.lists(st.integers(0, 9999), min_size=1, unique=True))
def test_the_index_is_the_nearest_entry(value, entries):
    sequence = sorted(entries)
    nearest = min(abs(value - e) for e in sequence)
    low, high = index_of(value, sequence), index_of(value, sequence, tie="high")
    assert abs(value - sequence[low]) == abs(value - sequence[high]) == nearest
    assert [abs(value - e) for e in sequence].index(nearest) == low <= high


@given(_SIZES, _SIZES, _SIZES)
def test_scale_times_ratios_is_the_shape(m, k, n):
    shape = GemmShape(m, k, n)
    assert (shape.ratios.m * shape.scale, shape.ratios.k * shape.scale) == (m, k)
    assert shape.ratios.scale == 1


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="m=-1"):
        GemmShape(-1, 2, 3)


def test_an_exact_row_answers_first():
    shape = GemmShape(500, 1600, 30)
    answer = table(row(shape, 256), row(GemmShape(64, 64, 64), 32)).lookup(
        "cortex-a57", shape, _DEFAULT
    )
    assert (answer.rule, answer.method, answer.history_rows) == ("exact", method(256), 3)


def test_the_first_feature_of_the_priority_decides():
    same_scale = GemmShape(80, 800, 70)  # g = 10, as in the query
    same_m = GemmShape(50, 7, 3)
    kb = table(row(same_scale, 1), row(same_m, 2))
    question = GemmShape(500, 1600, 30)
    assert kb.lookup("cortex-a57", question, _DEFAULT).rule == "relaxed:scale"
    other = table(row(same_scale, 1), row(same_m, 2), priority=("m", "scale", "n", "k"))
    answer = other.lookup("cortex-a57", question, _DEFAULT)
    assert (answer.rule, answer.method) == ("relaxed:m", method(2))


def test_of_several_rows_most_equal_fields_then_nearest_shape_wins():
    question = GemmShape(500, 1600, 30)
    two_equal = GemmShape(500, 30, 200)  # scale and m match
    near, far = GemmShape(4000, 1500, 1000), GemmShape(20, 10, 30_000)
    kb = table(row(two_equal, 1), row(near, 2), row(far, 3))
    assert kb.lookup("cortex-a57", question, _DEFAULT).method == method(1)


def test_without_a_row_the_board_answers():
    for kb in (table(), table(row(GemmShape(64, 64, 64), 1))):
        answer = kb.lookup("riscv-x60", GemmShape(1, 2, 3), _DEFAULT)
        assert (answer.rule, answer.method) == ("analytic", _DEFAULT)
        assert "riscv-x60" in answer.why
    for wanted, options in (
        ("f32 products with b packed", {"packed": "b"}),
        ("s8 products with unpacked operands", {"dtype": "s8"}),
    ):
        other = table(row(GemmShape(64, 64, 64), 1)).lookup(
            "cortex-a57", GemmShape(1, 2, 3), _DEFAULT, **options
        )
        assert other.why.startswith(f"no rows for {wanted} on cortex-a57;")


@given(_SIZES, _SIZES, _SIZES)
def test_the_order_of_rows_does_not_matter(m, k, n):
    rows = [
        row(GemmShape(500, 1600, 30), 1, gflops=2.0),
        row(GemmShape(64, 64, 64), 2, gflops=9.0),
        row(GemmShape(1000, 1, 1024), 3),
        row(GemmShape(64, 64, 64), 4, threads=2),
    ]
    question = GemmShape(m, k, n)
    answers = {
        table(*order).lookup("cortex-a57", question, _DEFAULT)
        for order in (rows, rows[::-1], rows[2:] + rows[:2])
    }
    assert len(answers) == 1


def test_two_rows_of_one_key_are_refused():
    with pytest.raises(ValueError, match="one row per key"):
        table(row(GemmShape(64, 64, 64), 1), row(GemmShape(64, 64, 64), 2))


def test_where_nothing_beats_the_default_it_is_made_for_the_product_asked_for():
    shape = GemmShape(500, 1600, 30)
    bare = GemmRow(key_of(shape, 0, Sequences()), None, shape, "tuner", 7, 1.0)
    found = table(bare, row(GemmShape(64, 64, 64), 1)).lookup("cortex-a57", shape, _DEFAULT)
    assert (found.rule, found.method, found.history_rows) == ("exact", _DEFAULT, 7)
    assert "analytic" in found.why


def test_a_row_that_does_not_relax_answers_for_its_own_key_only():
    shape = GemmShape(500, 1600, 30)
    kb = table(dataclasses.replace(row(shape, 256), relaxes=False))
    assert kb.lookup("cortex-a57", shape, _DEFAULT).method == method(256)
    found = kb.lookup("cortex-a57", GemmShape(50, 7, 11), _DEFAULT)
    assert (found.rule, found.method, found.row) == ("analytic", _DEFAULT, None)
    assert found.nearest == kb.rows[0] and "does not suit" in found.why


def test_a_row_holds_within_its_radius():
    """Products with the same key may be far apart: an s8 row of 512 x 32 x 8 was used for 1024 x 64
    x 16, and took 2.6 times as long as the analytic method."""
    shape, near, far = (GemmShape(s, s, s) for s in (100, 110, 400))
    everywhere = row(shape, 256)
    for radius, answers in ((None, (True, True, True)), (30, (True, True, False))):
        kb = table(dataclasses.replace(everywhere, radius=radius))
        found = [kb.lookup("cortex-a57", asked, _DEFAULT) for asked in (shape, near, far)]
        assert tuple(answer.rule == "exact" for answer in found) == answers
        assert tuple(answer.method == method(256) for answer in found) == answers
        assert tuple("100 x 100 x 100" not in answer.why for answer in found) == answers


def _operator_row(threads: int, shape: GemmShape, nr: int, dtype: str = "f32") -> OperatorRow:
    key = key_of(shape, 0, Sequences(), dtype, threads, "b", "conv1s1")
    method = OperatorMethod("in_place", dtype, 8, nr)
    return OperatorRow(key, method, shape, "estimate", 0.9, 100)


def test_rows_of_other_numbers_of_threads_answer_last_and_that_of_one_thread_first():
    shape, near = GemmShape(256, 64, 64), GemmShape(256, 64, 96)
    rows = (_operator_row(1, shape, 4), _operator_row(2, shape, 8), _operator_row(4, near, 12))
    table = KnowledgeBase(("core",), operators=rows)
    form = Form("conv", shape, "f32")
    found = {n: table.operator_row("core", form, n) for n in (1, 2, 3, 4)}
    columns = {n: row.method.nr for n, (row, _, _) in found.items()}
    assert columns == {1: 4, 2: 8, 3: 4, 4: 12}
    rules = {n: rule for n, (_, rule, _) in found.items()}
    assert rules[1] == rules[2] == "exact" and rules[3] == "relaxed:threads"
    assert rules[4].startswith("relaxed:") and rules[4] != "relaxed:threads"
    assert "measured on 1 thread, not 3" in found[3][2]
    assert table.knows_threads and not dataclasses.replace(table, operators=rows[:1]).knows_threads


def test_rows_of_several_threads_do_not_answer_for_one():
    shape = GemmShape(256, 64, 64)
    table = KnowledgeBase(("core",), operators=(_operator_row(4, shape, 12),))
    form = Form("conv", shape, "f32")
    assert table.operator_row("core", form, 1)[:2] == (None, "analytic")
    assert table.operator_row("core", form, 2)[0] is not None


def test_rows_of_signed_quantized_values_answer_for_unsigned_ones():
    shape, near, far = GemmShape(256, 64, 64), GemmShape(256, 64, 96), GemmShape(9, 4000, 4000)
    signed, own = _operator_row(1, shape, 4, "s8"), _operator_row(1, near, 8, "u8")
    table = KnowledgeBase(("core",), operators=(signed, own))
    row, rule, why = table.operator_row("core", Form("conv", shape, "u8"))
    assert row is not None and rule == "exact" and why.endswith("; measured on s8")
    assert row.method == OperatorMethod("in_place", "u8", 8, 4)
    found, rule, why = table.operator_row("core", Form("conv", near, "u8"))
    assert (found, rule) == (own, "exact") and "signed" not in why
    assert table.operator_row("core", Form("conv", far, "u8"))[0] is None
    assert table.operator_row("core", Form("conv", shape, "f32"))[0] is None
    nothing = KnowledgeBase(("core",), operators=(dataclasses.replace(signed, method=None),))
    assert nothing.operator_row("core", Form("conv", shape, "u8"))[0].method is None


def test_a_neighbors_turned_tile_does_not_answer_for_an_upright_one():
    """A tile's aspect ratio does not decide: on AVX-512, normal 24 x 16 took twice as long as
    transposed 96 x 4 on 256 x 256 x 8."""
    kb = table(row(GemmShape(500, 1600, 30), 256))  # an 8 x 4 tile, normal for vectors of 4
    question = GemmShape(50, 7, 11)
    for default, wanted in (((4, 8), "row"), ((8, 8), "row"), ((9, 4), "row"), ((8, 3), "default")):
        own = dataclasses.replace(_DEFAULT, mr=default[0], nr=default[1])
        found = kb.lookup("cortex-a57", question, own, vl=4)
        assert (found.rule == "analytic") == (wanted == "default")
        assert found.method == (own if wanted == "default" else method(256))


def test_a_tile_of_one_column_answers_for_one_column_only():
    vector, columns = GemmShape(1000, 1000, 1), GemmShape(4000, 4000, 4)  # same key
    how = Method(64, 64, 1, False, False, 128, 1)
    kb = table(GemmRow(key_of(vector, 0, Sequences()), how, vector, "tuner"))
    assert kb.lookup("cortex-a57", vector, _DEFAULT).method == how
    found = kb.lookup("cortex-a57", columns, _DEFAULT)
    assert (found.rule, found.method) == ("analytic", _DEFAULT)

"""The patent's rule for block width, and settings from a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import edgekit.kb
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings, block_width, default_settings
from edgekit.device.runtime.arrays.sparse_table import (
    Key,
    MatrixFeatures,
    SpmvRow,
    SpmvTable,
    key_of,
    read_table,
)
from edgekit.device.runtime.errors import InputError

_FEATURES = MatrixFeatures("f32", 10_000, 10_000, 100_000, 10.0, 3.0, 22, 8_000.0)
_RULE = BlockSettings(10)


@pytest.mark.parametrize(
    ("mean", "width"), [(7, 4), (3, 10), (20, 40), (21, 44), (16, 16), (4, 4), (0, 10)]
)
def test_width_follows_the_rule(mean, width):
    assert block_width(5, mean, lanes=4, register_lanes=4, line=16) == width


def test_a_first_guess_within_the_vector_stays():
    assert block_width(4, 100, lanes=4, register_lanes=4, line=16) == 4
    assert block_width(2, 100, lanes=4, register_lanes=4, line=16) == 10


@given(st.floats(0, 1e6), st.sampled_from([1, 4, 8, 16]), st.sampled_from([1, 2, 4, 8]))
def test_the_width_repeats_and_is_positive(mean, lanes, size):
    found = default_settings(mean, lanes, size)
    assert found == default_settings(mean, lanes, size)
    assert found.width >= 1


@pytest.mark.parametrize(
    "wrong", [{"width": 0}, {"window": -1}, {"wide_from": 1.5}, {"columns": -1}, {"index_bytes": 3}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        replace(_RULE, **wrong)


def _row(key: Key, width: int) -> SpmvRow:
    return SpmvRow(key, BlockSettings(width), f"matrix {width}", 0.9)


def test_a_table_answers_exactly_then_by_the_nearest_row_then_by_the_rule():
    key = key_of(_FEATURES)
    far, near = replace(key, rows=key.rows + 3), replace(key, mean=key.mean + 1)
    assert SpmvTable("core", (_row(far, 1), _row(key, 2))).lookup(_FEATURES, _RULE).rule == "exact"
    answer = SpmvTable("core", (_row(far, 1), _row(near, 3))).lookup(_FEATURES, _RULE)
    assert (answer.rule, answer.settings.width) == ("nearest", 3)
    nothing = replace(_row(key, 2), settings=None)
    answer = SpmvTable("core", (nothing,)).lookup(_FEATURES, _RULE)
    assert (answer.rule, answer.settings) == ("exact", _RULE) and "nothing beat" in answer.why
    other = SpmvTable("core", (_row(replace(key, band="narrow"), 1),))
    answer = other.lookup(_FEATURES, _RULE)
    assert (answer.rule, answer.settings) == ("patent", _RULE)


def test_a_row_that_kept_the_rule_s_width_keeps_that_of_each_matrix(tmp_path: Path) -> None:
    how = BlockSettings(156, index_bytes=2)
    rows = (SpmvRow(key_of(_FEATURES), how, "dense:128:256:0.3", 0.7, by_rule=True),)
    path = tmp_path / "t.json"
    path.write_text(SpmvTable("core", rows).text())
    assert '"width": 0' in path.read_text()
    answer = read_table(path).lookup(_FEATURES, _RULE)
    assert answer.settings == replace(_RULE, index_bytes=2)


def test_classes_of_spread_and_band():
    assert (_FEATURES.spread, _FEATURES.band) == ("random", "wide")
    assert replace(_FEATURES, deviation=1.0, span=50.0).spread == "even"
    assert replace(_FEATURES, deviation=1.0, span=50.0).band == "narrow"
    assert replace(_FEATURES, deviation=30.0, span=900.0).spread == "skewed"
    assert replace(_FEATURES, span=900.0).band == "banded"


def test_a_table_is_read_as_it_was_written(tmp_path):
    key = key_of(_FEATURES)
    other = replace(_row(replace(key, rows=0), 1), settings=None)
    table = SpmvTable("core", (other, _row(key, 7)))
    path = tmp_path / "table.json"
    path.write_text(table.text())
    assert read_table(path) == table
    assert read_table(path).text() == table.text()


def test_a_table_of_another_schema_is_refused_in_one_line(tmp_path):
    table = SpmvTable("cortex-a57", (SpmvRow(key_of(_FEATURES), None, "banded:3000:5", 1.0),))
    path = tmp_path / "table.json"
    path.write_text(table.text().replace("spmv/1", "spmv/2"))
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert str(caught.value) == (
        f"{path}: expected schema edgekit.kb.spmv/1, found edgekit.kb.spmv/2; "
        "measure it again: edgekit lab tune sparse"
    )


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "other/1"}', "[]", '{"schema": 1'])
def test_a_damaged_table_is_refused_in_one_line(text, tmp_path):
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"table\.json: expected"):
        read_table(path)


def test_the_tables_of_the_kit_are_read_and_written_alike():
    folder = Path(edgekit.kb.__file__).parent / "tables" / "spmv"
    tables = sorted(folder.glob("*.json"))
    assert tables
    for path in tables:
        assert read_table(path).text() == path.read_text()

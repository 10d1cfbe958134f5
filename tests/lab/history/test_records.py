"""Measured operators as history rows: stored completely, merged once, rejected if invalid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.compiler.costs.methods.operators import OperatorMethod
from edgekit.host.lab.history.operator_history import OperatorMeasurement
from edgekit.host.lab.history.records import OPERATOR_COLUMNS, operator_measurement, operator_row
from edgekit.host.lab.history.store import History
from edgekit.kb.features import GemmShape

_KNOWN = OperatorMeasurement(
    board="pi",
    platform="cortex-a53",
    model="face",
    operator="conv_1",
    form="conv",
    threads=2,
    shape=GemmShape(64, 32, 16),
    method=OperatorMethod("in_place", "f32", 8, 8, "m"),
    cost=0.9,
    default_cost=1.0,
    when="2026-11-22",
    kit_version="0.1.0",
    source="tuner",
)


@pytest.mark.parametrize("method", [{}, {"kc": 64, "members": 3, "band": 2}, {"mr": None}])
def test_a_row_gives_the_measurement_back(method):
    measured = replace(_KNOWN, method=replace(_KNOWN.method, **method))
    assert operator_measurement(operator_row(measured)) == measured


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("family", "magic", "expected a family of kernels, found magic"),
        ("band", 17, "expected a band of .*, found 17"),
        ("threads", "two", "expected a whole number for threads, found 'two'"),
        ("cost", "fast", "expected a number for cost, found 'fast'"),
        ("cost", -1.0, "expected cost above 0"),
        ("source", "hearsay", "expected a source of"),
    ],
)
def test_a_row_that_cannot_be_true_is_refused(column, value, message):
    values = dict(zip(OPERATOR_COLUMNS, operator_row(_KNOWN), strict=True))
    row = tuple({**values, column: value}.values())
    with pytest.raises(ValueError, match=message):
        operator_measurement(row)


def test_of_another_history_only_new_rows_are_taken(tmp_path: Path):
    other = replace(_KNOWN, operator="conv_2")
    with History(tmp_path / "history.sqlite") as history:
        history.add_operators([_KNOWN])
        assert history.merge([], [_KNOWN, other, other]) == 1
        assert history.read_operators().measurements == [_KNOWN, other]
        assert history.read_operators("another").measurements == []

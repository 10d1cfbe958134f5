"""Selecting the measured order of a part to store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.host.lab.history.orders import OrderMeasurement, order_rows
from edgekit.host.lab.history.store import History

_SEARCHED, _OTHER, _THIRD = (0, 1, 2), (1, 0, 2), (0, 2, 1)
_KNOWN = OrderMeasurement(
    board="pi",
    platform="cortex-a53",
    model="face",
    part="conv",
    graph="abc",
    order=_OTHER,
    searched=_SEARCHED,
    threads=1,
    cost=0.9,
    default_cost=1.0,
    when="2026-11-22",
    kit_version="0.9.1",
    source="tuner",
)


def test_the_best_order_of_a_part_is_remembered_with_its_source():
    worse = replace(_KNOWN, order=_THIRD, cost=0.95)
    usual = replace(_KNOWN, order=_SEARCHED, cost=1.0)
    (row,) = order_rows([_KNOWN, worse, usual])
    assert (row.order, row.searched, row.ratio) == (_OTHER, _SEARCHED, 0.9)
    assert (row.source, row.board, row.kit_version) == ("tuner", "pi", "0.9.1")


@pytest.mark.parametrize("cost", [0.981, 1.0, 1.2])
def test_what_gains_less_than_2_percent_is_not(cost):
    assert order_rows([replace(_KNOWN, cost=cost)]) == ()


def test_the_last_measurement_counts():
    assert order_rows([_KNOWN, replace(_KNOWN, cost=0.99)]) == ()
    assert len(order_rows([replace(_KNOWN, cost=0.99), _KNOWN])) == 1


def test_a_board_s_time_weighs_four_times_what_is_estimated():
    estimate = replace(_KNOWN, source="estimate", unit="cycles", cost=1.1)
    (row,) = order_rows([_KNOWN, estimate])
    assert row.ratio == pytest.approx((0.9**4 * 1.1) ** 0.2, rel=1e-3)
    assert row.source == "tuner"
    assert order_rows([replace(_KNOWN, cost=1.1), replace(estimate, cost=0.9)]) == ()


def test_an_older_kit_counts_until_a_newer_one_measured():
    assert len(order_rows([_KNOWN])) == 1
    newer = replace(_KNOWN, kit_version="0.10.0", cost=1.0)
    assert order_rows([newer, _KNOWN]) == ()


def test_only_what_was_measured_beside_the_last_searched_order_counts():
    other = replace(_KNOWN, order=_SEARCHED, searched=_THIRD, cost=0.97)
    (row,) = order_rows([_KNOWN, other])
    assert (row.order, row.searched) == (_SEARCHED, _THIRD)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cost": 0.0},
        {"default_cost": float("nan")},
        {"source": "guess"},
        {"unit": "hours"},
        {"order": (0, 0, 1)},
        {"order": ()},
        {"searched": (0, 1)},
    ],
)
def test_what_cannot_be_true_is_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        replace(_KNOWN, **wrong)


def test_the_history_keeps_orders_and_skips_damaged_ones(tmp_path):
    with History(tmp_path / "history.sqlite") as history:
        history.add_orders([_KNOWN, replace(_KNOWN, platform="cortex-a72")])
        assert history.read_orders("cortex-a53").measurements == [_KNOWN]
        history._db.execute("UPDATE orders SET run_order = '0,x,1'")
        read = history.read_orders()
    assert (read.measurements, read.skipped) == ([], 2)

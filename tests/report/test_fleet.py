"""The fleet view of profiles: releases, spread, stragglers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgekit.host.report import Report
from edgekit.host.report.field import field_report
from tests.support.reports import NEW, OLD, fill_fleet, fill_store

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

TODAY = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))


def report(count: int, inventory: tuple[str, ...] = ()) -> Report:
    return field_report(fill_fleet(count), TODAY, inventory)


@pytest.mark.exhaustive
def test_each_board_counts_with_the_release_it_sent_last() -> None:
    made = report(40)
    assert made.fleet is not None
    (group,) = made.fleet.groups
    assert (group.model, group.board_type, group.boards) == ("tiny", "a57", 40)
    assert [(one.release, one.boards) for one in group.releases] == [(OLD, 2), (NEW, 38)]
    newest = group.releases[-1]
    assert newest.spread.p10 <= newest.spread.median <= newest.spread.p90 <= newest.slowest
    assert newest.slowest == pytest.approx(550 * 1.6 * 1.03)  # board 3 of twenty, the slow one


@pytest.mark.slow
def test_stragglers_are_the_boards_that_are_not_as_the_others() -> None:
    made = report(40)
    assert made.fleet is not None
    (group,) = made.fleet.groups
    found = {one.board: one.why for one in group.stragglers}
    assert found == {
        "pi-0003": ("slow",),
        "pi-0023": ("slow",),
        "pi-0007": ("older release",),
        "pi-0027": ("older release",),
        "pi-0012": ("silent",),
        "pi-0032": ("silent",),
    }
    assert group.straggler_count == 6
    slow = next(one for one in group.stragglers if one.board == "pi-0003")
    assert slow.ratio == pytest.approx(1.6, rel=0.03)


def test_of_three_boards_none_is_far_from_the_others() -> None:
    made = field_report(fill_store(boards=("a", "b", "c")), TODAY, ())
    assert made.fleet is not None
    assert made.fleet.groups[0].stragglers == ()


def test_the_slow_and_the_outdated_of_eight_boards_are_reported() -> None:
    made = report(8)
    assert made.fleet is not None
    assert [one.board for one in made.fleet.groups[0].stragglers] == ["pi-0003", "pi-0007"]


@pytest.mark.exhaustive
def test_a_board_with_two_models_is_one_board_and_one_straggler() -> None:
    store = fill_fleet(20)
    fill_fleet(20, model="other")
    made = field_report(store, TODAY, ())
    assert made.fleet is not None
    assert [(group.boards, group.straggler_count) for group in made.fleet.groups] == [(20, 3)] * 2
    assert (made.fleet.boards, made.fleet.straggler_count) == (20, 3)


def test_boards_that_never_sent_a_profile_are_named() -> None:
    made = report(2, ("pi-0001", "pi-0009", "door"))
    assert made.fleet is not None
    assert (made.fleet.missing_count, made.fleet.missing) == (2, ("door", "pi-0009"))


def test_a_report_without_a_fleet_has_none() -> None:
    assert field_report(fill_store(), TODAY).fleet is None

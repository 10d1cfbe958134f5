"""Comparing releases: changes and their confidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles import ProfileStore, compare
from edgekit.host.fleet.profiles.compare import _drawn_medians
from tests.support.reports import NEW, OLD, fill_store

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))


def test_a_release_that_takes_four_fifths_is_found_to_do_so() -> None:
    found = compare(fill_store(), OLD[:4], NEW[:4])
    assert (found.before, found.after, found.model, found.board_type) == (OLD, NEW, "tiny", "a57")
    assert (found.paired, found.boards, found.batches) == (
        True,
        2,
        (16, 16),
    )  # 1 throttled
    for change in (found.whole, *found.operators):
        assert change.ratio == pytest.approx(0.8, rel=0.01)
        assert 0.7 < change.sure <= change.low <= 0.8 <= change.high < 0.9
    assert {c.name for c in found.operators} == {"first", "side", "last"}
    assert found.slower(0.0) == []


def test_the_way_back_is_slower_and_by_how_much_is_what_counts() -> None:
    found = compare(fill_store(), NEW, OLD)
    assert found.whole.ratio == pytest.approx(1.25, rel=0.01)
    assert {c.name for c in found.slower(0.05)} == {"", "first", "side", "last"}
    assert found.slower(0.30) == []


def test_the_same_data_give_the_same_interval() -> None:
    store = fill_store()
    assert compare(store, OLD, NEW) == compare(store, OLD, NEW)


def test_boards_that_ran_one_release_alone_are_pooled_only_if_all_did(tmp_path: Path) -> None:
    store = fill_store(boards=("east", "north"), releases=(OLD, "c" * 16))
    fill_store(boards=("west", "south"), releases=("d" * 16, NEW))
    found = compare(store, OLD, NEW)
    assert not found.paired and found.boards == 2
    assert found.whole.ratio == pytest.approx(0.8, rel=0.1)


def test_operators_of_one_release_alone_are_named() -> None:
    store = fill_store(operators=(("first", "conv2d", 400),), releases=(OLD, "c" * 16))
    fill_store(releases=("d" * 16, NEW))
    found = compare(store, OLD, NEW)
    assert ([c.name for c in found.operators], found.left_out) == (["first"], ("last", "side"))


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ((OLD, "f"), "found none for 'f'; the newest are"),
        ((OLD, ""), "found 2 that match for ''"),
        ((OLD, OLD), "expected two releases, found a* twice"),
    ],
)
def test_releases_that_are_not_there_are_named(names: tuple[str, str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        compare(fill_store(), *names)


def test_releases_of_different_boards_are_not_compared() -> None:
    store = fill_store(releases=(OLD, "c" * 16))
    fill_store(releases=("d" * 16, NEW), board_type="a72")
    with pytest.raises(InputError, match=r"one type of board.* for a57 and .* for a72"):
        compare(store, OLD, NEW)


def test_too_few_batches_say_nothing() -> None:
    with pytest.raises(InputError, match=r"at least 5 batches .* found 2 of a* and 2 of b*"):
        compare(fill_store(batches=1), OLD, NEW)


def test_an_empty_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected profiles to compare, found none"):
        compare(ProfileStore(tmp_path / "empty"), OLD, NEW)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_medians_are_drawn_as_from_samples(count: int) -> None:
    """Compared with bootstrap samples: both distributions have the same quantiles."""
    random = np.random.default_rng(1)
    ordered = np.sort(random.lognormal(size=count))
    drawn = np.median(random.choice(ordered, (4000, count)), axis=1)
    ours = _drawn_medians(ordered, random)
    for share in (0.1, 0.5, 0.9):
        place = np.searchsorted(np.sort(drawn), np.quantile(ours, share), side="right") / 4000
        assert place > share - 0.05
        below = np.searchsorted(np.sort(drawn), np.quantile(ours, share), side="left") / 4000
        assert below < share + 0.05

"""Rollout decisions on fictitious boards: which boards may be changed, and when."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.errors import InputError
from edgekit.host.fleet.rollout import (
    TRANSITIONS,
    BeginBatch,
    BoardEvent,
    DeployBoards,
    End,
    PlannedBoard,
    Policy,
    RolloutPlan,
    RolloutProgress,
    Share,
    Step,
    WatchBoards,
    decide,
    parse_share,
    why_stop,
)


def plan(count: int, kinds: int = 1) -> RolloutPlan:
    boards = tuple(PlannedBoard(f"b{i:02d}", f"k{i % kinds}") for i in range(count))
    return RolloutPlan("id", "asked", "m", boards, {f"k{i}": "0" * 16 for i in range(kinds)})


def carry(
    what: RolloutPlan,
    policy: Policy,
    fate: Callable[[str, str], str],
    rounds: int = 1,
    seen: Callable[[Step, RolloutProgress], None] = lambda *_: None,
) -> RolloutProgress:
    """Simulates a rollout in which `fate` returns the outcome of each deploy or watch. Offline
    boards are retried `rounds` times."""
    progress = RolloutProgress.of(what)
    while True:
        step = decide(what, policy, progress)
        seen(step, progress)
        if isinstance(step, End):
            progress.end(step.verdict, step.reason)
            return progress
        if isinstance(step, BeginBatch):
            rounds -= step.again
            if rounds < 0:
                return progress
            progress.begin(step.boards, step.canary)
        elif isinstance(step, DeployBoards):
            for name in step.boards:
                if not why_stop(what, policy, progress):
                    progress.take(BoardEvent(name, "began"))
                    progress.take(BoardEvent(name, fate(name, "deploy"), changed=True))  # type: ignore[arg-type]
        else:
            for name in step.boards:
                progress.take(BoardEvent(name, fate(name, "watch")))  # type: ignore[arg-type]


def fine(_: str, doing: str) -> str:
    return "deployed" if doing == "deploy" else "passed"


def test_canaries_of_each_kind_come_first_then_batches() -> None:
    begun: list[tuple[int, bool]] = []

    def seen(step: Step, _: RolloutProgress) -> None:
        if isinstance(step, BeginBatch):
            begun.append((len(step.boards), step.canary))

    end = carry(plan(21, 2), Policy(1, Share(20, True)), fine, seen=seen)
    assert begun == [(2, True), (5, False), (5, False), (5, False), (4, False)]
    assert end.ended == "finished"
    assert len(end.names("done")) == 21


@pytest.mark.parametrize("doing", ["deploy", "watch"])
@pytest.mark.parametrize("what", ["failed", "lost"])
def test_a_canary_with_a_bad_release_is_the_only_board_touched(doing: str, what: str) -> None:
    end = carry(plan(1000), Policy(), lambda name, now: what if now == doing else fine(name, now))
    assert end.ended == "stopped"
    assert "canary 'b00'" in end.reason
    assert end.names(what) == ["b00"]
    assert len(end.names("waiting")) == 999


def test_stops_when_more_than_the_share_failed_and_not_before() -> None:
    def fate(name: str, doing: str) -> str:
        return "failed" if doing == "deploy" and name != "b00" else fine(name, doing)

    end = carry(plan(100), Policy(1, Share(50, True), Share(5, True)), fate)
    assert end.ended == "stopped"
    assert len(end.names("failed")) == 6
    assert end.reason == "6 of 100 boards failed or were lost"
    good = carry(plan(6), Policy(1, Share(50, True), Share(5, False)), fate)
    assert (good.ended, len(good.names("failed"))) == ("finished", 5)


def test_a_canary_asleep_is_replaced_and_taken_when_it_is_back() -> None:
    away = {"b00", "b01"}

    def fate(name: str, doing: str) -> str:
        if doing == "deploy" and name in away:
            return "slept"
        return fine(name, doing)

    def seen(step: Step, _: RolloutProgress) -> None:
        if isinstance(step, BeginBatch) and step.again:
            away.discard("b00")

    end = carry(plan(4), Policy(), fate, rounds=1, seen=seen)
    assert end.names("done") == ["b00", "b02", "b03"]
    assert end.names("asleep") == ["b01"]
    assert end.ended is None


def test_half_a_fleet_asleep_stops_nothing() -> None:
    def fate(name: str, doing: str) -> str:
        return "slept" if int(name[1:]) % 2 else fine(name, doing)

    end = carry(plan(40), Policy(), fate)
    assert len(end.names("done")) == 20
    assert len(end.names("asleep")) == 20


def test_every_event_leads_where_the_table_says_and_nowhere_else() -> None:
    states = {old for old, _ in TRANSITIONS} | set(TRANSITIONS.values())
    kinds = {kind for _, kind in TRANSITIONS}
    for state in states:
        for kind in kinds:
            progress = RolloutProgress.of(plan(1))
            progress.records["b00"] = progress.records["b00"].__class__(state=state)
            if (state, kind) in TRANSITIONS:
                progress.take(BoardEvent("b00", kind))
                assert progress.records["b00"].state == TRANSITIONS[state, kind]
            else:
                with pytest.raises(ValueError, match=f"{kind} after {state}"):
                    progress.take(BoardEvent("b00", kind))


def test_what_ran_before_the_rollout_is_not_its_own() -> None:
    progress = RolloutProgress.of(plan(3))
    for name in ("b00", "b01", "b02"):
        progress.take(BoardEvent(name, "began"))
    progress.take(BoardEvent("b00", "deployed", changed=True, previous="old"))
    progress.take(BoardEvent("b01", "deployed", changed=False))
    progress.take(BoardEvent("b02", "began"))  # the host crashed; the board finished alone
    progress.take(BoardEvent("b02", "deployed", changed=False))
    assert [progress.records[n].ours for n in ("b00", "b01", "b02")] == [True, False, True]


@given(
    count=st.integers(1, 40),
    kinds=st.integers(1, 3),
    canaries=st.integers(0, 3),
    batch=st.integers(1, 100),
    stop_at=st.integers(0, 100),
    seed=st.integers(0, 1 << 30),
    trouble=st.floats(0, 0.3),
)
def test_no_fate_touches_more_boards_than_the_policy_allows(
    count: int, kinds: int, canaries: int, batch: int, stop_at: int, seed: int, trouble: float
) -> None:
    what, chance = plan(count, kinds), random.Random(seed)
    policy = Policy(canaries, Share(batch, True), Share(stop_at, True))

    def fate(name: str, doing: str) -> str:
        if chance.random() < trouble:
            return chance.choice(["failed", "lost", *["slept"] * (doing == "deploy")])
        return fine(name, doing)

    kind_of = {board.name: board.kind for board in what.boards}

    def seen(step: Step, progress: RolloutProgress) -> None:
        broken = progress.names("failed", "lost")
        if isinstance(step, DeployBoards):
            assert len(broken) <= stop_at * count / 100
        if isinstance(step, BeginBatch) and not step.canary:
            for kind in {kind_of[name] for name in step.boards}:
                same = [name for name in kind_of if kind_of[name] == kind]
                proven = [name for name in same if progress.records[name].state == "done"]
                assert len(proven) >= min(canaries, len(same))
        if isinstance(step, WatchBoards):
            assert set(step.boards) <= set(progress.batch)

    end = carry(what, policy, fate, rounds=3, seen=seen)
    assert not end.names("going", "watched") or end.ended == "stopped"
    assert end.ended or end.names("asleep", "lost")
    if end.ended == "finished":
        assert not end.names("waiting", "asleep", "lost")


@pytest.mark.parametrize("text", ["", "x", "-1", "101%", "1.5", "5 %%"])
def test_an_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--batch: expected a number of boards"):
        parse_share(text, "--batch")


def test_shares() -> None:
    assert parse_share("20%", "--batch").of(30) == 6
    assert parse_share("50", "--batch").of(30) == 50

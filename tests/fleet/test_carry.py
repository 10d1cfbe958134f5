"""Rollouts to simulated boards with real release folders and the real agent."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.batch import Spread, batch_bytes
from edgekit.device.runtime.agent.release import rollback
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import BusyError, InputError
from edgekit.host.fleet.journal import find_rollout, new_id, want_stop, write_plan
from edgekit.host.fleet.journal import rollouts as rollouts_there
from edgekit.host.fleet.profiles import ProfileStore
from edgekit.host.fleet.rollout import Policy, RolloutPlan, Share
from tests.fleet.conftest import BOARDS, Rollouts
from tests.support.profile_batches import SPOOL, batch, field_batch

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
OTHER = 'TINY_NAME="other"'


def test_every_board_gets_it_once_canary_first(rollouts: Rollouts, tiny: TinyBundle) -> None:
    found = rollouts.carry(tiny())
    assert found.ended == "finished"
    assert rollouts.said == [
        "canary 1: 1 of 4 boards (sim0000)",
        "batch 2: 2 of 4 boards (sim0001, sim0002)",
        "batch 3: 1 of 4 boards (sim0003)",
    ]
    release = tiny().manifest.id
    assert rollouts.runs() == [release] * BOARDS
    committed = [f"committed {release}"]
    assert [board.applied() for board in rollouts.farm.boards] == [committed] * BOARDS
    again = rollouts.carry(tiny())
    assert again.ended == "finished"
    assert [len(board.applied()) for board in rollouts.farm.boards] == [1] * BOARDS


@pytest.mark.parametrize("defines", ["TINY_CRASH", "TINY_WRONG"])
def test_a_bad_release_ends_at_the_canary(
    rollouts: Rollouts, tiny: TinyBundle, defines: str
) -> None:
    rollouts.carry(tiny())
    found = rollouts.carry(tiny(defines))
    assert found.ended == "stopped"
    assert found.reason.startswith("canary 'sim0000' failed: board 'sim0000': ")
    assert found.records["sim0000"].exit_code == 7
    assert rollouts.runs() == [tiny().manifest.id] * BOARDS
    assert [len(board.applied()) for board in rollouts.farm.boards] == [2, 1, 1, 1]


@pytest.mark.exhaustive
def test_a_board_that_lies_is_named_and_left_alone(rollouts: Rollouts, tiny: TinyBundle) -> None:
    liar = rollouts.farm.boards[3]
    liar.lie.write_text(json.dumps({"machine": "riscv64", "core_names": []}))
    found = rollouts.carry(tiny())
    assert found.ended == "finished"
    assert found.names("failed") == ["sim0003"]
    record = found.records["sim0003"]
    assert record.exit_code == 5
    assert "expected a match with its profile local, found riscv64" in record.message
    assert not liar.applied()
    assert len(found.names("done")) == 3


@pytest.mark.exhaustive
def test_a_board_that_dies_in_the_middle_is_taken_when_it_is_back(
    rollouts: Rollouts, tiny: TinyBundle
) -> None:
    board = rollouts.farm.boards[2]
    board.dies.write_text("apply")
    found = rollouts.carry(tiny())
    assert found.ended is None
    assert found.names("lost") == ["sim0002"]
    assert len(found.names("done")) == 3
    board.dies.unlink()
    board.asleep.unlink()
    found = rollouts.carry(tiny())
    assert found.ended == "finished"
    assert found.names("done") == [board.name for board in rollouts.farm.boards]
    assert [len(board.applied()) for board in rollouts.farm.boards] == [1] * BOARDS


def test_half_the_fleet_asleep_is_taken_when_it_comes_back(
    rollouts: Rollouts, tiny: TinyBundle
) -> None:
    away = rollouts.farm.boards[::2]  # including the first canary
    for board in away:
        board.asleep.touch()
    found = rollouts.carry(tiny())
    assert found.ended is None
    assert found.names("asleep") == [board.name for board in away]
    assert [len(board.applied()) for board in rollouts.farm.boards] == [0, 1, 0, 1]

    def wake(seconds: float) -> None:
        assert seconds == 30
        away[0].asleep.unlink(missing_ok=True)
        if rollouts.now > 60:
            for board in away:
                board.asleep.unlink(missing_ok=True)

    rollouts.on_sleep = wake
    found = rollouts.carry(tiny(), wait=3600)
    assert found.ended == "finished"
    assert rollouts.runs() == [tiny().manifest.id] * BOARDS


@pytest.mark.exhaustive
def test_a_canary_that_goes_back_while_it_is_watched_stops_all(
    rollouts: Rollouts, tiny: TinyBundle
) -> None:
    rollouts.carry(tiny())
    rollouts.on_sleep = lambda _: rollback(Store(rollouts.farm.boards[0].root)) and None
    found = rollouts.carry(tiny(OTHER), pause=100)
    assert found.ended == "stopped"
    assert f"expected release {tiny(OTHER).manifest.id} to stay" in found.reason
    assert rollouts.now == 10  # stopped before the end of the pause
    assert rollouts.runs() == [tiny().manifest.id] * BOARDS


@pytest.mark.exhaustive
def test_a_person_stops_it_while_the_canary_is_watched(
    rollouts: Rollouts, tiny: TinyBundle
) -> None:
    rollouts.on_sleep = lambda _: want_stop(rollouts_there()[0].folder, "enough") and None
    found = rollouts.carry(tiny(), pause=100)
    assert (found.ended, found.reason, rollouts.now) == ("stopped", "enough", 10)
    assert rollouts.runs() == [tiny().manifest.id, *[None] * (BOARDS - 1)]
    rollouts.on_sleep = lambda _: None
    assert rollouts.carry(tiny()).ended == "finished"  # a new one


@pytest.mark.exhaustive
def test_a_release_that_is_slower_in_the_field_stops_at_the_canary(
    rollouts: Rollouts, tiny: TinyBundle
) -> None:
    pytest.importorskip("duckdb")
    rollouts.store = ProfileStore()
    rollouts.carry(tiny())

    def measured(release: str, first: int, median_ns: int) -> None:
        assert rollouts.store is not None
        stream = b""
        for number in range(first, first + 8):
            made = batch(number)
            made = replace(
                made,
                subject=replace(made.subject, release=release),
                whole=Spread(9, median_ns + number, median_ns + 9, median_ns + 99),
            )
            stream += batch_bytes(made, SPOOL, number, 0, 0)
        rollouts.store.add("sim0000", stream)

    measured(tiny().manifest.id, 0, 1_000_000)
    rollouts.on_sleep = lambda _: measured(tiny(OTHER).manifest.id, 100, 1_300_000)
    found = rollouts.carry(tiny(OTHER), pause=1)
    assert found.ended == "stopped"
    assert "expected at most 10% more than the 1.000 ms" in found.reason
    assert found.records["sim0000"].exit_code == 9
    assert [len(board.applied()) for board in rollouts.farm.boards] == [2, 1, 1, 1]


@pytest.mark.parametrize("agreed", [85, 99])
def test_a_release_that_agrees_too_seldom_stops_at_the_canary(
    rollouts: Rollouts, tiny: TinyBundle, agreed: int
) -> None:
    pytest.importorskip("duckdb")
    rollouts.store = ProfileStore()
    release = tiny().manifest.id

    def measured(_: float) -> None:
        assert rollouts.store is not None
        for board in ("sim0000", "elsewhere"):  # which is not part of the rollout
            share = agreed if board == "sim0000" else 184 - agreed
            rollouts.store.add(board, field_batch(1, 100, share, release=release))

    rollouts.on_sleep = measured
    found = rollouts.carry(tiny(), pause=1, min_agreement=0.98)
    if agreed == 99:
        assert found.ended == "finished"
        assert f"agreement of {release} with its float model: 0.9900 of 100 " in "".join(
            rollouts.said
        )
        assert "0 inferences, too few to judge" in "".join(rollouts.said)
        return
    assert found.ended == "stopped"
    assert (
        "expected 0.98 of its inferences to agree with the float model, found 0.85" in found.reason
    )
    assert found.records["sim0000"].exit_code == 9
    assert [len(board.applied()) for board in rollouts.farm.boards] == [1, 0, 0, 0]


@pytest.mark.exhaustive
def test_a_full_disk_at_home_loses_nothing(rollouts: Rollouts, tiny: TinyBundle) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(text: str) -> None:
        if text.startswith("batch 3"):
            file = next((rollouts.folder / "home" / "rollouts").glob("2*/journal.jsonl"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 300, before[1]))

    rollouts.on_say = fill
    try:
        with pytest.raises(
            InputError, match=r"journal.jsonl: expected to write it, found: (File|No)"
        ):
            rollouts.carry(tiny())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    rollouts.on_say = lambda _: None
    found = rollouts.carry(tiny())
    assert found.ended == "finished"
    assert [len(board.applied()) for board in rollouts.farm.boards] == [1] * BOARDS


def test_the_newest_rollout_is_the_last_one_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    for now in (1_800_000_000.0, 0.0, 1_900_000_000.0, 1_800_000_000.0, 0.0):
        made = new_id(lambda now=now: now)
        write_plan(RolloutPlan(made, "asked", "m", (), {}), {})
        assert find_rollout("newest").plan.id == made
    assert len(rollouts_there()) == 5
    shutil.rmtree(tmp_path / "rollouts")
    assert new_id(lambda: 0.0).startswith("19700101-000000-")


@pytest.mark.exhaustive
def test_only_one_rollout_at_a_board(rollouts: Rollouts, tiny: TinyBundle) -> None:
    journal = rollouts.open(tiny())
    for bundle in (tiny(), tiny(OTHER)):
        with pytest.raises(BusyError, match="found another process on this host using 4 of them"):
            rollouts.open(bundle, restart=True)
    journal.close()
    with pytest.raises(InputError, match="found it interrupted with 4 of these boards; resume"):
        rollouts.open(tiny(OTHER))
    assert rollouts.carry(tiny(OTHER), restart=True).ended == "finished"


def test_a_journal_that_broke_off_or_is_damaged(rollouts: Rollouts, tiny: TinyBundle) -> None:
    journal = rollouts.open(tiny())
    journal.begin(["sim0000"], True)
    file = journal.folder / "journal.jsonl"
    journal.close()
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"at":1.0,"batch":["sim')
    again = rollouts.open(tiny())
    assert again.progress.batch == ("sim0000",)
    again.close()
    assert file.read_bytes() == whole
    for bad in (b"x\n", b'{"at":1,"event":{"board":"who","kind":"began"}}\n', b"[]\n"):
        file.write_bytes(whole + bad)
        with pytest.raises(InputError, match="expected the journal of a rollout"):
            rollouts.open(tiny())


def test_more_failures_than_allowed_stop_the_rest(
    rollouts: Rollouts, tiny: TinyBundle, tmp_path: Path
) -> None:
    del tmp_path
    for board in rollouts.farm.boards[1:]:
        board.lie.write_text(json.dumps({"features": []}))
    found = rollouts.carry(tiny(), Policy(1, Share(100, True), Share(1, False)))
    assert found.ended == "stopped"
    assert found.reason.endswith("of 4 boards failed or were lost")
    assert found.names("done") == ["sim0000"]

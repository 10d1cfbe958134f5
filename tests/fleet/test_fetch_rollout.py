"""Rollouts to boards that fetch: canaries, batches, stop and rollback without a connection."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import DeviceError
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.inventory import BoardEntry
from edgekit.host.errors import InputError
from edgekit.host.fleet import Silent
from edgekit.host.fleet.control import REASON, HostRollouts
from edgekit.host.fleet.executor import RolloutHost, RolloutPace
from edgekit.host.fleet.fetch_rollout import FetchCarrier, take_back_fetched
from edgekit.host.fleet.journal import NEWEST, Journal, find_rollout
from edgekit.host.fleet.rollout import Policy, RolloutProgress, Share
from edgekit.host.fleet.start import open_rollout
from tests.support.fetching import Fetching, enroll_board, fetching, owner_keys

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
NAMES = ("x", "y", "z")


@dataclass
class Fleet:
    """Three boards that poll whenever the rollout sleeps, unless they are `away`."""

    folder: Path
    boards: dict[str, Fetching]
    away: set[str] = field(default_factory=set)
    now: float = 0.0
    on_sleep: Callable[[float], None] = lambda _: None
    history: list[tuple[str | None, ...]] = field(default_factory=list)

    def open(self, bundle: Bundle) -> Journal:
        file = self.folder / f"{bundle.manifest.id}.ekb"
        bundle.write(file)
        entries = [BoardEntry(name, "local") for name in NAMES]
        releases = str(self.boards["x"].folder.path)
        return open_rollout(file, entries, lambda _: bundle, settings={}, folder=releases)

    def carry(self, bundle: Bundle, policy: Policy, pause: float = 0.0) -> RolloutProgress:
        """Carries a rollout as far as possible; another call resumes it."""
        place = self.boards["x"]
        with contextlib.closing(self.open(bundle)) as journal:
            entries = [BoardEntry(name, "local") for name in NAMES]
            carrier = FetchCarrier(
                journal, entries, policy, RolloutPace(pause, 20.0), self.home, False
            )
            carrier.offering(place.folder, place.owner).run()
            return journal.progress

    @property
    def home(self) -> RolloutHost:
        return RolloutHost(self.watch, lambda _: None, self.sleep, lambda: self.now)

    def runs(self) -> tuple[str | None, ...]:
        return tuple(board.current for board in self.boards.values())

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for name, board in self.boards.items():
            if name not in self.away:
                with contextlib.suppress(DeviceError):
                    board.poll()
        self.history.append(self.runs())
        self.on_sleep(seconds)

    @contextlib.contextmanager
    def watch(self, text: str, count: int) -> Iterator[Silent]:
        del text, count
        yield Silent()


@pytest.fixture
def fleet(tmp_path: Path, board_root: Path) -> Iterator[Fleet]:
    with fetching(tmp_path, board_root) as place:
        boards = {"x": place}
        for name in NAMES[1:]:
            root = tmp_path / name
            shutil.copytree(board_root, root)
            home = enroll_board(place.server, place.folder, root, name)
            boards[name] = replace(place, store=Store(root), home=home)
        yield Fleet(tmp_path, boards)


ONE_BY_ONE = Policy(1, Share(1, False), Share(0, False))


def test_a_canary_comes_first_then_batches(fleet: Fleet, tiny: TinyBundle) -> None:
    release = tiny().manifest.id
    progress = fleet.carry(tiny(), ONE_BY_ONE, pause=5.0)
    assert (progress.ended, progress.names("done")) == ("finished", list(NAMES))
    assert fleet.runs() == (release,) * 3
    seen = list(dict.fromkeys(fleet.history))
    assert seen == [(release, None, None), (release, release, None), (release,) * 3]


def test_a_bad_canary_stops_it_before_others_are_offered_anything(
    fleet: Fleet, tiny: TinyBundle
) -> None:
    fleet.carry(tiny(), ONE_BY_ONE)
    progress = fleet.carry(tiny("TINY_WRONG", counter=1), ONE_BY_ONE)
    assert progress.ended == "stopped"
    assert "canary 'x' failed: board 'x': release" in progress.reason
    fleet.sleep(600)
    assert fleet.runs() == (tiny().manifest.id,) * 3


@pytest.mark.parametrize("is_carried_out", [True, False])
@pytest.mark.exhaustive
def test_a_person_stops_it_before_a_board_that_sleeps_fetches(
    fleet: Fleet, tiny: TinyBundle, is_carried_out: bool
) -> None:
    fleet.away = {"x"}
    control = HostRollouts((), lambda: fleet.boards["x"].owner)

    def sleep(_: float) -> None:
        if not is_carried_out:
            raise KeyboardInterrupt
        assert "stops when" in control.stop(control.newest()[0].id)

    fleet.on_sleep = sleep
    with contextlib.nullcontext() if is_carried_out else pytest.raises(KeyboardInterrupt):
        fleet.carry(tiny(), ONE_BY_ONE)
    if not is_carried_out:
        assert control.stop(control.newest()[0].id).endswith("is stopped")
    (row,) = control.newest()
    assert (row.state, row.reason) == ("stopped", REASON)
    assert [(one.name, one.state) for one in row.troubled] == [("x", "lost")]
    fleet.on_sleep, fleet.away = lambda _: None, set()
    fleet.sleep(600)
    assert fleet.runs() == (None,) * 3


@pytest.mark.exhaustive
def test_a_board_that_sleeps_gets_it_when_the_command_is_repeated(
    fleet: Fleet, tiny: TinyBundle
) -> None:
    fleet.away = {"y"}
    policy = Policy(1, Share(2, False), Share(1, False))
    progress = fleet.carry(tiny(), policy)
    assert (progress.ended, progress.names("asleep")) == (None, ["y"])
    fleet.away = set()
    progress = fleet.carry(tiny(), policy)
    assert (progress.ended, progress.names("done")) == ("finished", list(NAMES))


@pytest.mark.exhaustive
def test_boards_that_have_not_fetched_when_it_stops_are_offered_it_no_more(
    fleet: Fleet, tiny: TinyBundle
) -> None:
    fleet.carry(tiny(counter=3), ONE_BY_ONE)
    fleet.away = {"z"}
    place = fleet.boards["y"]
    place.store.counters.write_text('{"tiny": 9}')  # y refuses what follows
    progress = fleet.carry(tiny(counter=4), Policy(1, Share(2, False), Share(0, False)))
    assert progress.ended == "stopped"
    assert (progress.names("failed"), progress.names("lost")) == (["y"], ["z"])
    fleet.away = set()
    fleet.sleep(600)
    assert fleet.boards["z"].current == tiny(counter=3).manifest.id


def test_a_rollout_is_taken_back(fleet: Fleet, tiny: TinyBundle) -> None:
    fleet.carry(tiny(), ONE_BY_ONE)
    fleet.carry(tiny(counter=1), Policy(1, Share(2, False), Share(0, False)))
    fleet.away = {"z"}
    with contextlib.closing(Journal(find_rollout(NEWEST).folder)) as journal:
        place = fleet.boards["x"]
        said = take_back_fetched(
            journal, place.folder, place.owner, fleet.home, fleet.watch("", 0), 10.0
        )
        assert said == {"z": "has not reported yet"}
        assert journal.progress.names("back") == ["x", "y"]
        fleet.away = set()
        again = take_back_fetched(
            journal, place.folder, place.owner, fleet.home, fleet.watch("", 0), 10.0
        )
        assert (again, journal.progress.ended) == ({}, "rolled back")
    assert fleet.runs() == (tiny().manifest.id,) * 3


def test_only_the_owner_of_a_folder_offers_releases_there(
    fleet: Fleet, tiny: TinyBundle, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="expected releases to be offered with the key"):
        fleet.boards["x"].folder.offer(owner_keys(tmp_path / "other"), [tiny()], [])

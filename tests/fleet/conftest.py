"""A farm of simulated boards that trust the tests' key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import Bundle, SigningKey
from edgekit.host.fleet import Silent
from edgekit.host.fleet.executor import RolloutHost, RolloutPace, carry_out
from edgekit.host.fleet.journal import Journal
from edgekit.host.fleet.profiles import ProfileStore
from edgekit.host.fleet.rollout import Policy, RolloutProgress, Share
from edgekit.host.fleet.start import open_rollout
from tests.support.board_farm import Farm, running_farm
from tests.support.fetching import Fetching, fetching

BOARDS = 4
POLICY = Policy(1, Share(2, False), Share(1, False))


@dataclass
class Rollouts:
    """Rolls bundles out to a farm. Time advances only in `sleep`, which calls `on_sleep`."""

    farm: Farm
    folder: Path
    said: list[str] = field(default_factory=list)
    on_sleep: Callable[[float], None] = lambda seconds: None
    now: float = 0.0
    store: ProfileStore | None = None
    on_say: Callable[[str], None] = lambda text: None

    def open(self, bundle: Bundle, restart: bool = False) -> Journal:
        file = self.folder / f"{bundle.manifest.id}.ekb"
        bundle.write(file)
        return open_rollout(
            file, self.farm.entries(), lambda _: bundle, settings={}, restart=restart
        )

    def carry(
        self,
        bundle: Bundle,
        policy: Policy = POLICY,
        pause: float = 0.0,
        wait: float = 0.0,
        restart: bool = False,
        min_agreement: float | None = None,
    ) -> RolloutProgress:
        """Carries a rollout as far as possible; another call resumes it."""
        home = RolloutHost(self._watch, self._say, self._sleep, lambda: self.now, self.store)
        with contextlib.closing(self.open(bundle, restart)) as journal:
            pace = RolloutPace(pause, wait, 0.1, 4, min_agreement)
            carry_out(journal, self.farm.entries(), policy, pace, home)
            return journal.progress

    def runs(self) -> list[str | None]:
        """The current release of each board, read from its links."""
        return [Store(board.root).links().current for board in self.farm.boards]

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep(seconds)

    def _say(self, text: str) -> None:
        self.said.append(text)
        self.on_say(text)

    @contextlib.contextmanager
    def _watch(self, text: str, count: int) -> Iterator[Silent]:
        del text, count
        yield Silent()


@pytest.fixture
def rollouts(
    tmp_path: Path, trusted: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rollouts]:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    with running_farm(tmp_path / "farm", BOARDS) as farm:
        for board in farm.boards:
            store = Store(board.root)
            store.create()
            enroll(store, trusted.public.line)
        yield Rollouts(farm, tmp_path)


@pytest.fixture
def place(tmp_path: Path, board_root: Path) -> Iterator[Fetching]:
    with fetching(tmp_path, board_root) as found:
        yield found

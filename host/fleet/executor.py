"""Executes a rollout: deploys, watches and logs until it is finished or must stop.

Every event is journaled before it is acted on, so the process may die at any moment and the next
one resumes. Interrupted deployments are simply repeated: the board either runs the release already
or resumes the transfer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

from edgekit.device.runtime.agent.states import ON_BOARD
from edgekit.device.runtime.errors import DeviceError
from edgekit.host.deploy.inventory import BoardEntry
from edgekit.host.deploy.release import DeployProgress, Release, deploy
from edgekit.host.errors import BusyError, EdgekitError, UnreachableError
from edgekit.host.fleet.health import (
    check_agreement,
    check_board,
    check_kind,
    check_times,
    fetch_profiles,
)
from edgekit.host.fleet.journal import Journal
from edgekit.host.fleet.profiles import ProfileStore
from edgekit.host.fleet.rollout import (
    BeginBatch,
    BoardEvent,
    DeployBoards,
    End,
    EventKind,
    Policy,
    RolloutProgress,
    WatchBoards,
    decide,
    why_stop,
)
from edgekit.host.fleet.runner import PARALLEL, BoardOutcome, Observer, Turn, run_on
from edgekit.kb.targets.board import load_board

_T = TypeVar("_T")

_CHECKS = 10  # checks of canaries during the watch period
_SHORTEST_SECONDS = 1.0  # minimum time between two checks
_LOOK_SECONDS = 1.0  # between two looks whether the rollout shall stop
_POLL_SECONDS = 30.0  # between two attempts to reach boards that do not answer


@dataclass(frozen=True)
class RolloutPace:
    """Timing limits of a rollout.

    `pause` is the watch time per batch and `wait` the time to wait for boards that do not answer,
    both in seconds. `fail_above` is how much slower a release may be in the field than the one
    before (0.1: 10%). `parallel` is the number of boards at a time. `min_agreement` is the least
    fraction of inferences that must agree with the float model.
    """

    pause: float = 600.0
    wait: float = 0.0
    fail_above: float = 0.1
    parallel: int = PARALLEL
    min_agreement: float | None = None


@dataclass(frozen=True)
class RolloutHost:
    """Host services of a rollout, injected so that tests need not wait. `sleep` and `clock` use
    seconds, `watch` displays a run over that many boards, `say` prints a message to the user."""

    watch: Callable[[str, int], AbstractContextManager[Observer]]
    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    store: ProfileStore | None = None


def stoppable_sleep(journal: Journal) -> Callable[[float], None]:
    """A sleep, in seconds, that ends early when another process wants the rollout to stop."""

    def sleep(seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and not journal.is_stopped():
            time.sleep(min(left, _LOOK_SECONDS))

    return sleep


class _InterruptedError(Exception):
    """`cause` stopped a run over boards."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


def carry_out(
    journal: Journal,
    boards: Sequence[BoardEntry],
    policy: Policy,
    pace: RolloutPace,
    home: RolloutHost,
    allow_downgrade: bool = False,
) -> None:
    """Resumes the rollout of `journal` until it is over or only unreachable boards remain. `boards`
    are the inventory entries of the boards in the plan. Reraises any exception that interrupts the
    rollout."""
    try:
        Carrier(journal, boards, policy, pace, home, allow_downgrade).run()
    except _InterruptedError as stopped:
        raise stopped.cause from None


class Carrier:
    """A rollout being carried out. `deploy_batch` and `check_health` are how boards are reached."""

    def __init__(
        self,
        journal: Journal,
        boards: Sequence[BoardEntry],
        policy: Policy,
        pace: RolloutPace,
        home: RolloutHost,
        allow_downgrade: bool,
    ) -> None:
        self.journal, self.policy, self.pace, self.home = journal, policy, pace, home
        self.plan = journal.plan
        self._entries = {entry.name: entry for entry in boards}
        self.kinds = {board.name: board.kind for board in self.plan.boards}
        self._allow_downgrade = allow_downgrade
        self.bundle = cache(journal.bundle)
        self.tried: set[str] = set()
        self._steps: dict[str, DeployProgress] = {}

    @property
    def progress(self) -> RolloutProgress:
        return self.journal.progress

    def run(self) -> None:
        for kind in self.plan.releases:
            self.bundle(kind)  # reject a bad bundle before any board is touched
        ends = self.home.clock() + self.pace.wait
        while True:
            self.journal.is_stopped()
            step = decide(self.plan, self.policy, self.progress)
            if isinstance(step, End):
                if not self.progress.ended:
                    self.journal.end(step.verdict, step.reason)
                return
            if isinstance(step, BeginBatch):
                found = self._next_boards(step, ends)
                if not found:
                    return
                if self.journal.is_stopped():
                    continue
                self.journal.begin(found, step.canary)
                self._say_batch(found, step)
            elif isinstance(step, DeployBoards):
                self.deploy_batch(step.boards)
            else:
                self._watch_health(step)

    def _next_boards(self, step: BeginBatch, ends: float) -> tuple[str, ...]:
        """Boards to deploy to next. Boards that did not answer in this run are retried after a
        delay, and not at all once the wait time is over."""
        if not step.again:
            return step.boards
        if fresh := tuple(name for name in step.boards if name not in self.tried):
            return fresh
        left = ends - self.home.clock()
        if left <= 0:
            return ()
        self.home.say(f"{len(self._absent_boards())} boards do not answer; trying again")
        self.home.sleep(min(_POLL_SECONDS, left))
        return step.boards

    def _absent_boards(self) -> list[str]:
        return self.progress.names("asleep", "lost")

    def _say_batch(self, boards: Sequence[str], step: BeginBatch) -> None:
        what = "canary" if step.canary else "batch"
        shown = f" ({', '.join(boards)})" if len(boards) <= 3 else ""
        again = " that did not answer before" if step.again else ""
        self.home.say(
            f"{what} {self.progress.batches}: {len(boards)} of {len(self.plan.boards)} "
            f"boards{again}{shown}"
        )

    def deploy_batch(self, names: Sequence[str]) -> None:
        """Deploys to boards, and journals how that ended."""
        self.tried.update(names)

        def ended(outcome: BoardOutcome[Release]) -> bool:
            self.journal.note(self._event_of(outcome))
            return bool(why_stop(self.plan, self.policy, self.progress))

        with self.home.watch("deploying", len(names)) as view:
            self._run_on_boards(names, self._deploy_one, ended, _Noting(view, self.journal))

    def _deploy_one(self, turn: Turn) -> Release:
        name, kind = turn.board.name, self.kinds[turn.board.name]

        def on_step(step: DeployProgress) -> None:
            self._steps[name] = step
            turn.tell(step.state)

        return deploy(
            turn.device.named(self.plan.name or None),
            self.bundle(kind),
            progress=on_step,
            allow_downgrade=self._allow_downgrade,
            own=turn.device.own,
            check=partial(check_kind, name, load_board(kind)),
        )

    def _event_of(self, outcome: BoardOutcome[Release]) -> BoardEvent:
        found, error = outcome.value, outcome.error
        step = self._steps.get(outcome.board)
        release = step.release if step else ""
        if found is not None:
            return BoardEvent(
                outcome.board,
                "deployed",
                release=found.id,
                previous=found.previous or "",
                changed=found.changed,
                seconds=outcome.seconds,
            )
        kind: EventKind = "failed"
        if isinstance(error, BusyError):
            kind = "slept"  # another process is using the board: not the fault of the release
        elif isinstance(error, UnreachableError):
            kind = "lost" if step and step.state in ON_BOARD else "slept"
        return failure_event(outcome.board, kind, error, release, outcome.seconds)

    def _watch_health(self, step: WatchBoards) -> None:
        """Checks boards periodically during the pause; those healthy at its end pass."""
        ends = self.home.clock() + self.pace.pause
        every = max(self.pace.pause / _CHECKS, _SHORTEST_SECONDS) if step.canary else ends
        if self.pace.pause:
            self.home.say(f"watching {len(step.boards)} boards for {self.pace.pause:g} s")
        elif not step.canary:
            self._mark_passed(step.boards)  # the deployment just checked their health
            return
        left = list(step.boards)
        while (remaining := ends - self.home.clock()) > 0:
            self.home.sleep(min(every, remaining))
            left = [] if self.journal.is_stopped() else self.check_health(left)
            if why_stop(self.plan, self.policy, self.progress):
                return
            if self.home.clock() >= ends:
                break
        if not self.pace.pause:
            left = self.check_health(left)
        self._mark_passed(left)

    def _mark_passed(self, names: Sequence[str]) -> None:
        for name in names:
            self.journal.note(BoardEvent(name, "passed"))

    def check_health(self, names: Sequence[str]) -> list[str]:
        """Checks boards and returns the healthy ones."""
        store = self.home.store

        def check_one(turn: Turn) -> None:
            record = self.progress.records[turn.board.name]
            check_board(turn, record.release, self.plan.name)
            if store is not None and self.judges_profiles:
                fetch_profiles(turn, store)

        def ended(outcome: BoardOutcome[None]) -> bool:
            if outcome.error is not None:
                lost = isinstance(outcome.error, UnreachableError)
                kind: EventKind = "lost" if lost else "failed"
                self.journal.note(failure_event(outcome.board, kind, outcome.error))
            return bool(why_stop(self.plan, self.policy, self.progress))

        with self.home.watch("watching", len(names)) as view:
            self._run_on_boards(names, check_one, ended, view)
        well = self.progress.names("watched", among=names)
        if store is not None:
            well = self.check_times(store, well)
        return well

    @property
    def judges_profiles(self) -> bool:
        """Whether profiles are compared: times of the default deployment only."""
        return not self.plan.name or self.pace.min_agreement is not None

    def check_times(self, store: ProfileStore, names: Sequence[str]) -> list[str]:
        """Marks boards as failed if their release is slower in the field than the one before, or
        agrees less with its float model than it has to."""
        if (least := self.pace.min_agreement) is not None:
            self._check_agreement(store, names, least)
            names = self.progress.names("watched", among=names)
        pairs: dict[tuple[str, str], list[str]] = {}
        for name in names:
            record = self.progress.records[name]
            if record.previous:
                pairs.setdefault((record.previous, record.release), []).append(name)
        for pair, boards in pairs.items():
            try:
                for line in check_times(store, [pair], self.pace.fail_above):
                    self.home.say(line)
            except EdgekitError as error:
                for name in boards:
                    self.journal.note(failure_event(name, "failed", error))
        return self.progress.names("watched", among=names)

    def _check_agreement(self, store: ProfileStore, names: Sequence[str], least: float) -> None:
        by_release: dict[str, list[str]] = {}
        for name in names:
            by_release.setdefault(self.progress.records[name].release, []).append(name)
        for release, boards in by_release.items():
            try:
                self.home.say(check_agreement(store, release, boards, least))
            except EdgekitError as error:
                for name in boards:
                    self.journal.note(failure_event(name, "failed", error))

    def _run_on_boards(
        self,
        names: Sequence[str],
        work: Callable[[Turn], _T],
        ended: Callable[[BoardOutcome[_T]], bool],
        view: Observer,
    ) -> None:
        boards = [self._entries[name] for name in names]
        run = run_on(boards, work, parallel=self.pace.parallel, watch=view, stop=ended)
        if run.stopped is not None:
            raise _InterruptedError(run.stopped)


class _Noting:
    """Journals the start of each deployment; other events are only displayed."""

    def __init__(self, view: Observer, journal: Journal) -> None:
        self._view, self.journal = view, journal
        self.stage_changed, self.ended, self.tick = view.stage_changed, view.ended, view.tick

    def began(self, board: str) -> None:
        self.journal.note(BoardEvent(board, "began"))
        self._view.began(board)


def failure_event(
    board: str,
    kind: EventKind,
    error: EdgekitError | DeviceError | None,
    release: str = "",
    seconds: float = 0.0,
) -> BoardEvent:
    """The event of a board that failed or was lost with this error."""
    code = error.exit_code if error else 1
    return BoardEvent(board, kind, str(error), code, release=release, seconds=seconds)

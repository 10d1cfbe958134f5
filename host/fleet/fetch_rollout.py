"""Rollouts to boards that fetch: each batch is offered in signed metadata, and boards report.

Canaries, batches, pauses and limits are those of executor.py. A board's release is in the metadata
only from its batch on, so not even a stolen server gets ahead of the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from edgekit.host.errors import EdgekitError, IncompatibleError, RolledBackError, TransferError
from edgekit.host.fleet.executor import Carrier, failure_event
from edgekit.host.fleet.journal import Journal
from edgekit.host.fleet.rollback import touched
from edgekit.host.fleet.rollout import BoardEvent, why_stop
from edgekit.host.fleet.runner import BoardOutcome, Observer
from edgekit.host.fleet.updates import BoardReport, Offered, OwnerKeys, ReleaseFolder

LONGEST_SECONDS = 3600.0  # for a batch to report, unless --wait says otherwise
_LOOK_SECONDS = 2.0
_RUNS = ("committed", "unchanged")
_ERRORS: Mapping[int, type[EdgekitError]] = {5: IncompatibleError, 7: RolledBackError}


class FetchCarrier(Carrier):
    """Offers a rollout's batches in `folder`, which `owner` signs."""

    def offering(self, folder: ReleaseFolder, owner: OwnerKeys) -> FetchCarrier:
        """Sets where boards fetch from; returns this object."""
        self._folder, self._owner = folder, owner
        return self

    def deploy_batch(self, names: Sequence[str]) -> None:
        for name in names:
            self.tried.add(name)
            self.journal.note(BoardEvent(name, "began"))
        self._offer(names)
        waiting = set(names)
        ends = self.home.clock() + (self.pace.wait or LONGEST_SECONDS)
        with self.home.watch("fetching", len(names)) as view:
            for name in names:
                view.began(name)
            while waiting and self.home.clock() < ends:
                for name in sorted(waiting):
                    if self._heard_of(name, view):
                        waiting.discard(name)
                self.journal.is_stopped()
                if why_stop(self.plan, self.policy, self.progress):
                    break
                if waiting:
                    self.home.sleep(_LOOK_SECONDS)
                    view.tick()
            self._give_up(sorted(waiting), view)

    def check_health(self, names: Sequence[str]) -> list[str]:
        for name in names:
            report = self._report(name)
            if report is not None and report.end == "rolled back":
                self.journal.note(failure_event(name, "failed", _error_of(name, report)))
        well = self.progress.names("watched", among=names)
        if self.home.store is not None and self.judges_profiles:
            well = self.check_times(self.home.store, well)
        return well

    def _offer(self, names: Sequence[str]) -> None:
        by_release: dict[str, list[str]] = {}
        for name in names:
            by_release.setdefault(self.plan.releases[self.kinds[name]], []).append(name)
        bundles = [self.bundle(kind) for kind in self.plan.releases]
        self._folder.offer(
            self._owner,
            [bundle for bundle in bundles if bundle.manifest.id in by_release],
            [
                Offered(release, self.plan.name, self.plan.id, tuple(boards))
                for release, boards in by_release.items()
            ],
        )

    def _report(self, name: str) -> BoardReport | None:
        """What the board has said of this rollout."""
        found = self._folder.reports(name).get(self.plan.name)
        return found if found and found.rollout == self.plan.id and not found.back else None

    def _heard_of(self, name: str, view: Observer) -> bool:
        """Journals a board's report; returns False while there is none. What may pass, such as a
        lost connection, the board tries again."""
        report = self._report(name)
        if report is None or (report.end == "failed" and report.exit_code not in _ERRORS):
            return False
        if report.end in _RUNS:
            self.journal.note(
                BoardEvent(
                    name,
                    "deployed",
                    release=report.release,
                    previous=report.previous,
                    changed=report.end == "committed",
                    saved_bytes=report.saved_bytes,
                )
            )
            view.ended(BoardOutcome(name, report))
            return True
        error = _error_of(name, report)
        self.journal.note(failure_event(name, "failed", error, report.release))
        view.ended(BoardOutcome(name, error=error))
        return True

    def _give_up(self, names: Sequence[str], view: Observer) -> None:
        """Notes that boards have not reported. Where the rollout must stop, their offer ends, but
        they may have fetched the release already."""
        stops = bool(why_stop(self.plan, self.policy, self.progress))
        if stops and names:
            self._folder.withdraw(self._owner, self.plan.id, names)
        for name in names:
            error = _no_report(name, self.plan.id, stops)
            self.journal.note(failure_event(name, "lost" if stops else "slept", error))
            view.ended(BoardOutcome(name, error=error))


def end_fetching(journal: Journal, owner: OwnerKeys, reason: str) -> None:
    """Ends a rollout that no process carries out: boards whose offer is open are offered nothing
    anymore, but may have fetched the release already. InputError if `owner` may not withdraw it."""
    plan, names = journal.plan, journal.progress.names("going")
    if names:
        ReleaseFolder(Path(plan.folder)).withdraw(owner, plan.id, names)
    for name in names:
        journal.note(failure_event(name, "lost", _no_report(name, plan.id, True)))
    journal.end("stopped", reason)


class _Home(Protocol):
    """What `take_back_fetched` needs of RolloutHost."""

    @property
    def sleep(self) -> Any: ...
    @property
    def clock(self) -> Any: ...


def take_back_fetched(
    journal: Journal,
    folder: ReleaseFolder,
    owner: OwnerKeys,
    home: _Home,
    watch: AbstractContextManager[Observer],
    seconds: float = LONGEST_SECONDS,
) -> dict[str, str]:
    """Offers the boards of a rollout to return from its release, and waits for their reports up to
    so many seconds. Returns why boards have not returned; it can be repeated. The rollout ends when
    no board is left."""
    names, plan = touched(journal), journal.plan
    kinds = {board.name: board.kind for board in plan.boards}
    offers: dict[str, list[str]] = {}
    for name in names:
        offers.setdefault(plan.releases[kinds[name]], []).append(name)
    folder.offer(
        owner,
        [journal.bundle(kind) for kind in plan.releases],
        [Offered(release, plan.name, plan.id, tuple(of), True) for release, of in offers.items()],
    )
    said: dict[str, str] = {}
    ends = home.clock() + seconds
    with watch as view:
        for name in names:
            view.began(name)
        while left := touched(journal):
            for name in left:
                found = folder.reports(name).get(plan.name)
                if found is None or found.rollout != plan.id or not found.back:
                    said[name] = "has not reported yet"
                elif found.end == "back":
                    said.pop(name, None)
                    journal.note(BoardEvent(name, "went back", release=found.current))
                    view.ended(BoardOutcome(name, found))
                else:
                    said[name] = found.message
            if home.clock() >= ends:
                break
            home.sleep(_LOOK_SECONDS)
            view.tick()
    if not touched(journal):
        journal.end("rolled back")
    return said


def _no_report(name: str, rollout: str, stops: bool) -> TransferError:
    return TransferError(
        f"board '{name}': expected a report about {rollout}, found none"
        f"{' before the rollout stopped' if stops else ''}"
    )


def _error_of(name: str, report: BoardReport) -> EdgekitError:
    return _ERRORS.get(report.exit_code, TransferError)(f"board '{name}': {report.message}")

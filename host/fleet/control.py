"""This host's rollouts as the fleet's live page shows, stops and takes them back.

Stopping is asked of the process that carries a rollout out; without one, it ends here. Taking back
runs `edgekit rollback` in a process of its own, which may last and which a server's end does not
break off: it can be repeated.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

from edgekit.host.errors import BusyError, InputError
from edgekit.host.fleet.fetch_rollout import end_fetching
from edgekit.host.fleet.journal import (
    Journal,
    StoredRollout,
    find_rollout,
    is_carried_out,
    newest_rollouts,
    want_stop,
)
from edgekit.host.fleet.profiles.live import RolloutRow, TroubledBoard
from edgekit.host.fleet.updates import OwnerKeys

REASON = "a person stopped it on the fleet's page"
_NEWEST = 5
_MOST_TROUBLED = 20  # of a rollout
_MOST_AT_ONCE = 4  # rollouts that are taken back
_TROUBLED = ("failed", "lost", "asleep")
_LOG = "rollback.log"


class HostRollouts:
    """The rollouts in this user's data folder. `edgekit` begins an edgekit command line."""

    def __init__(
        self, edgekit: Sequence[str], owner: Callable[[], OwnerKeys] = OwnerKeys.of_host
    ) -> None:
        self._edgekit, self._owner = tuple(edgekit), owner
        self._lock = threading.Lock()
        self._returning: dict[str, subprocess.Popen[bytes]] = {}

    def newest(self) -> list[RolloutRow]:
        """The newest rollouts, the last one first."""
        return [self._row(one) for one in newest_rollouts(_NEWEST)]

    def stop(self, rollout: str) -> str:
        """Lets a rollout touch no more boards. InputError if it is over, or if releases that
        boards fetch cannot be withdrawn here."""
        found = find_rollout(rollout)
        if ended := found.progress.ended:
            raise InputError(f"rollout {rollout}: expected one in progress, found it {ended}")
        want_stop(found.folder, REASON)
        try:
            journal = Journal(found.folder)
        except BusyError:
            return f"{rollout} stops when the boards that it works on are done"
        with closing(journal):
            if not journal.progress.ended and journal.plan.folder:
                end_fetching(journal, self._owner(), REASON)
            elif not journal.progress.ended:
                journal.end("stopped", REASON)
        return f"{rollout} is stopped"

    def take_back(self, rollout: str) -> str:
        """Begins to return a rollout's boards to what they ran before. BusyError if it is still
        carried out, or others are being taken back."""
        folder = find_rollout(rollout).folder
        if is_carried_out(folder):
            raise BusyError(f"rollout {rollout}: expected no process to run it, found one; stop it")
        with self._lock:
            busy = [one for one, child in self._returning.items() if child.poll() is None]
            if len(busy) >= _MOST_AT_ONCE or rollout in busy:
                raise BusyError(f"expected rollbacks to be over, found {', '.join(busy)} running")
            command = [*self._edgekit, "rollback", "--rollout", rollout]
            with (folder / _LOG).open("wb") as log:
                self._returning[rollout] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
                )
        return f"the boards of {rollout} return to what they ran before"

    def _row(self, found: StoredRollout) -> RolloutRow:
        plan, progress = found.plan, found.progress
        state: str = progress.ended or "interrupted"
        if not progress.ended and is_carried_out(found.folder):
            state = "stopping" if progress.stop_wanted else "in progress"
        records = progress.records.items()
        troubled = [(name, one) for name, one in records if one.state in _TROUBLED]
        return RolloutRow(
            plan.id,
            plan.model,
            plan.name,
            found.began,
            state,
            progress.reason,
            Counter(record.state for _, record in records),
            [
                TroubledBoard(name, one.state, one.message)
                for name, one in troubled[:_MOST_TROUBLED]
            ],
            self._note(found),
        )

    def _note(self, found: StoredRollout) -> str:
        """What the rollback of a rollout came to."""
        with self._lock:
            child = self._returning.get(found.plan.id)
        if child is None:
            return ""
        code = child.poll()
        if code is None:
            return "boards return to what they ran before"
        if code == 0:
            return "all boards have returned"
        lines = (found.folder / _LOG).read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("edgekit: ") if lines else f"the rollback ended with {code}"

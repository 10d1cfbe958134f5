"""Starts a new rollout or resumes an interrupted one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.inventory import BoardEntry
from edgekit.host.errors import BusyError, InputError
from edgekit.host.fleet.journal import (
    Journal,
    StoredRollout,
    beginning,
    is_carried_out,
    new_id,
    rollouts,
    write_plan,
)
from edgekit.host.fleet.rollout import PlannedBoard, RolloutPlan


def open_rollout(
    model: Path,
    boards: Sequence[BoardEntry],
    make: Callable[[BoardEntry], Bundle],
    *,
    settings: Mapping[str, object],
    name: str = "",
    restart: bool = False,
    folder: str = "",
) -> Journal:
    """Opens the journal, and takes the lock, of a rollout of `model` to `boards`.

    An interrupted rollout that was requested with the same `settings` is resumed. For a new one,
    `make` builds the bundle of each kind of board, given one board of that kind. BusyError if
    another process uses any of these boards; InputError if a different rollout to them was
    interrupted, unless `restart` is set, which abandons that one. Boards fetch from `folder`,
    unless it is empty.
    """
    planned = tuple(PlannedBoard(entry.name, entry.profile) for entry in boards)
    asked = _request_hash(model, planned, settings, name)
    with beginning():
        if found := _find_interrupted(asked, planned, restart):
            return Journal(found.folder)
    kinds = {entry.profile: entry for entry in reversed(boards)}
    bundles = {kind: make(entry) for kind, entry in sorted(kinds.items())}
    releases = {kind: bundle.manifest.id for kind, bundle in bundles.items()}
    plan = RolloutPlan(new_id(), asked, model.name, planned, releases, name, folder)
    with beginning():
        if found := _find_interrupted(asked, planned, restart):  # started by another process
            return Journal(found.folder)
        return Journal(write_plan(plan, bundles))


def _find_interrupted(
    asked: str, planned: Sequence[PlannedBoard], restart: bool
) -> StoredRollout | None:
    """The rollout to resume. Abandons others on the same boards, or raises."""
    names = {board.name for board in planned}
    for found in rollouts():
        shared = names & {board.name for board in found.plan.boards}
        if found.progress.ended or not shared:
            continue
        one = f"rollout {found.plan.id} of {found.plan.model}"
        if is_carried_out(found.folder):
            raise BusyError(
                f"{one}: expected its boards to be free, found another process on this host using "
                f"{len(shared)} of them; wait for it to end, or see: edgekit "
                f"status --rollout {found.plan.id}"
            )
        if found.plan.asked == asked and not restart:
            return found
        if not restart:
            raise InputError(
                f"{one}: expected it to have ended, found it interrupted with {len(shared)} of "
                "these boards; resume it with the command that started it, undo it: edgekit "
                f"rollback --rollout {found.plan.id}, or abandon it: add --restart"
            )
        journal = Journal(found.folder)
        journal.end("given up")
        journal.close()
    return None


def _request_hash(
    model: Path, planned: Sequence[PlannedBoard], settings: Mapping[str, object], name: str
) -> str:
    with model.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    boards = [[board.name, board.kind] for board in planned]
    text = json.dumps([content, boards, dict(sorted(settings.items())), name])
    return hashlib.sha256(text.encode()).hexdigest()

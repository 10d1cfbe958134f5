"""Rolls back a rollout: each board that runs its release returns to the previous one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.deploy.inventory import BoardEntry
from edgekit.host.errors import InputError
from edgekit.host.fleet.journal import Journal
from edgekit.host.fleet.rollout import BoardEvent
from edgekit.host.fleet.runner import PARALLEL, BoardOutcome, FleetRun, Observer, Turn, run_on


@dataclass(frozen=True)
class Back:
    """The release a board runs now, and whether the rollback changed it."""

    release: str
    changed: bool


def touched(journal: Journal) -> list[str]:
    """Boards that may run the release because of this rollout and have not been rolled back."""
    return [
        name
        for name, record in journal.progress.records.items()
        if record.ours or record.state in ("going", "lost")
        if record.state != "back"
    ]


def take_back(
    journal: Journal,
    boards: Sequence[BoardEntry],
    watch: Observer,
    parallel: int = PARALLEL,
) -> FleetRun[Back]:
    """Rolls back the boards that run the release; others are left alone.

    Each board is queried before it is changed, so an interrupted rollback can be repeated. The
    rollout ends when no board is left. A board with no previous release fails with InputError.
    """
    kinds = {board.name: board.kind for board in journal.plan.boards}
    records = dict(journal.progress.records)

    def work(turn: Turn) -> Back:
        name = turn.board.name
        release = records[name].release or journal.plan.releases[kinds[name]]
        return _roll_back_board(turn, release, journal.plan.name)

    def ended(outcome: BoardOutcome[Back]) -> bool:
        if outcome.value is not None:
            journal.note(BoardEvent(outcome.board, "went back", release=outcome.value.release))
        return False

    run = run_on(boards, work, parallel=parallel, watch=watch, stop=ended)
    if not touched(journal):
        journal.end("rolled back")
    return run


def _roll_back_board(turn: Turn, release: str, name: str) -> Back:
    board = turn.device.named(name or None)
    turn.tell("status")
    found = board.status()
    if found.current is None or found.current.id != release:
        return Back(found.current.id if found.current else "", False)
    if found.previous is None:
        raise InputError(
            f"board '{turn.board.name}': expected a release before {found.current.id}, found none; "
            f"remove it: edgekit remove --board {turn.board.name}"
        )
    turn.tell("rollback")
    after = board.rollback()
    return Back(after.current.id if after.current else "", True)

"""A rollout as a table of states, and the rule that says what comes next; no board is touched here.

Canaries of each kind of board come first and are watched; then come batches, each watched. Boards
that were asleep are tried again at the end. Whoever carries it out notes each event (journal.py)
and asks `decide` again, after a crash of this host as well: the same events give the same state.
See docs/fleets.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from edgekit.host.errors import InputError

State = Literal["waiting", "going", "asleep", "lost", "watched", "done", "failed", "back"]
EventKind = Literal["began", "slept", "lost", "deployed", "failed", "passed", "went back"]
Verdict = Literal["finished", "stopped", "given up", "rolled back"]

# From a board's state and what happened to its new state; any other pair is a mistake.
TRANSITIONS: Mapping[tuple[State, EventKind], State] = {
    ("waiting", "began"): "going",
    ("asleep", "began"): "going",  # it may have come back
    ("lost", "began"): "going",
    ("going", "began"): "going",  # this host was interrupted; the board knows how far it came
    ("going", "slept"): "asleep",  # no answer, and nothing on it was switched
    ("going", "lost"): "lost",  # no answer after the switch may have begun
    ("going", "failed"): "failed",
    ("going", "deployed"): "watched",
    ("watched", "lost"): "lost",
    ("watched", "failed"): "failed",
    ("watched", "passed"): "done",
    ("going", "went back"): "back",
    ("lost", "went back"): "back",
    ("watched", "went back"): "back",
    ("failed", "went back"): "back",
    ("done", "went back"): "back",
}
BROKEN: tuple[State, ...] = ("failed", "lost")
ABSENT: tuple[State, ...] = ("asleep", "lost")


@dataclass(frozen=True)
class PlannedBoard:
    """A board of the rollout; boards of one `kind`, a profile's name, get one release."""

    name: str
    kind: str


@dataclass(frozen=True)
class Plan:
    """What a rollout is to reach, written down before it begins.

    `asked` is a hash of all that was asked for: the same command again goes on. `releases` has the
    release of each kind, `name` is what the model is deployed as, empty for the default one.
    """

    id: str
    asked: str
    model: str
    boards: tuple[PlannedBoard, ...]
    releases: Mapping[str, str]
    name: str = ""


@dataclass(frozen=True)
class Share:
    """So many boards, or so many percent of them."""

    number: float
    percent: bool

    def of(self, total: int) -> float:
        return self.number * total / 100 if self.percent else self.number


def parse_share(text: str, option: str) -> Share:
    """`20%` or `50`; InputError names the option."""
    digits = text.strip().removesuffix("%").strip()
    percent = text.strip().endswith("%")
    try:
        number = float(digits)
    except ValueError:
        number = -1.0
    if not 0 <= number <= (100 if percent else 1e6) or (not percent and not digits.isdigit()):
        raise InputError(
            f"{option}: expected a number of boards, or percent as 20%, found '{text}'"
        )
    return Share(number, percent)


@dataclass(frozen=True)
class Policy:
    """How careful a rollout is: canaries of each kind, boards of a batch, and how many boards may
    fail before no further one is touched; of the canaries none may."""

    canaries: int = 1
    batch: Share = Share(20, True)
    stop_at: Share = Share(5, True)


@dataclass(frozen=True)
class Event:
    """What happened to a board, as the journal keeps it.

    `release` is what the board is to run: that of its kind, with the board's own application.
    `previous` is what ran before, "" if nothing did or the release ran already (`changed` False).
    """

    board: str
    kind: EventKind
    message: str = ""
    exit_code: int = 0
    release: str = ""
    previous: str = ""
    changed: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class BoardRecord:
    """How far a board is. `ours`: this rollout put the release there, so that it may take it back;
    what ran it before is left alone. `unheard`: a deploy may have ended without our hearing of it.
    """

    state: State = "waiting"
    tries: int = 0
    canary: bool = False
    message: str = ""
    exit_code: int = 0
    release: str = ""
    previous: str = ""
    ours: bool = False
    unheard: bool = False
    seconds: float = 0.0


@dataclass
class Progress:
    """All that happened so far; `due` are boards of the batch that have not been begun with."""

    records: dict[str, BoardRecord]
    batch: tuple[str, ...] = ()
    due: set[str] = field(default_factory=set)
    ended: Verdict | None = None
    reason: str = ""
    batches: int = 0

    @staticmethod
    def of(plan: Plan) -> Progress:
        return Progress({board.name: BoardRecord() for board in plan.boards})

    def begin(self, boards: Sequence[str], canary: bool) -> None:
        """A batch begins."""
        self.batch, self.due = tuple(boards), set(boards)
        self.batches += 1
        for name in boards:
            self.records[name] = replace(self.records[name], canary=canary)

    def take(self, event: Event) -> None:
        """ValueError if the table has no such transition."""
        old = self.records[event.board]
        state = TRANSITIONS.get((old.state, event.kind))
        if state is None:
            raise ValueError(f"{event.board}: {event.kind} after {old.state}")
        new = replace(old, state=state, message=event.message, exit_code=event.exit_code)
        new = replace(new, release=event.release or old.release)
        if event.kind == "began":
            self.due.discard(event.board)
            unheard = old.unheard or old.state in ("going", "lost")
            new = replace(new, tries=old.tries + 1, unheard=unheard)
        elif event.kind == "deployed":
            ours = old.ours or event.changed or old.unheard
            new = replace(new, previous=event.previous or old.previous, ours=ours)
        self.records[event.board] = replace(new, seconds=old.seconds + event.seconds)

    def end(self, verdict: Verdict, reason: str = "") -> None:
        self.ended, self.reason = verdict, reason

    def names(self, *states: State, among: Sequence[str] | None = None) -> list[str]:
        """Boards in one of the states, in the order of the plan or as they stand in `among`."""
        where = self.records if among is None else among
        return [name for name in where if self.records[name].state in states]


@dataclass(frozen=True)
class Begin:
    """A new batch; `again`: of boards that were asleep or lost, when there is time to wait."""

    boards: tuple[str, ...]
    canary: bool
    again: bool = False


@dataclass(frozen=True)
class Deploy:
    """Boards of the batch are to be deployed to."""

    boards: tuple[str, ...]


@dataclass(frozen=True)
class Watch:
    """Boards of the batch run the release, and are to be watched."""

    boards: tuple[str, ...]
    canary: bool


@dataclass(frozen=True)
class End:
    """Nothing is left to do."""

    verdict: Verdict
    reason: str = ""


Step = Begin | Deploy | Watch | End


def decide(plan: Plan, policy: Policy, progress: Progress) -> Step:
    """What comes next; the same for the same events."""
    if progress.ended:
        return End(progress.ended, progress.reason)
    if interrupted := progress.names("going", among=progress.batch):
        return Deploy(tuple(interrupted))
    if reason := why_stop(plan, policy, progress):
        return End("stopped", reason)
    if due := [name for name in progress.batch if name in progress.due]:
        return Deploy(tuple(due))
    if fresh := progress.names("watched", among=progress.batch):
        return Watch(tuple(fresh), any(progress.records[name].canary for name in fresh))
    return _next_batch(plan, policy, progress)


def why_stop(plan: Plan, policy: Policy, progress: Progress) -> str:
    """Why no further board may be touched; empty if they may."""
    for name in progress.names(*BROKEN):
        record = progress.records[name]
        if record.canary:
            return f"canary '{name}' {record.state}: {record.message}"
    broken, total = len(progress.names(*BROKEN)), len(plan.boards)
    if broken > policy.stop_at.of(total):
        return f"{broken} of {total} boards failed or were lost"
    return ""


def _next_batch(plan: Plan, policy: Policy, progress: Progress) -> Step:
    canaries, others = _candidates(plan, policy, progress, "waiting")
    if canaries:
        return Begin(tuple(canaries), True)
    if others:
        size = max(1, math.ceil(policy.batch.of(len(plan.boards))))
        return Begin(tuple(others[:size]), False)
    canaries, others = _candidates(plan, policy, progress, *ABSENT)
    if not (canaries or others):
        return End("finished")

    def tries(names: Sequence[str]) -> float:
        return min((progress.records[name].tries for name in names), default=math.inf)

    first = tries(canaries) <= tries(others)  # a kind that never comes back holds off no other
    return Begin(tuple(canaries if first else others), first, again=True)


def _candidates(
    plan: Plan, policy: Policy, progress: Progress, *states: State
) -> tuple[list[str], list[str]]:
    """Boards in these states that may be touched next: as canaries of a kind that has too few so
    far, and the others; those that were tried least come first."""
    canaries, others = [], []
    for boards in _by_kind(plan).values():
        proven = len(progress.names("done", among=boards))
        there = progress.names(*states, among=boards)
        there.sort(key=lambda name: progress.records[name].tries)
        if proven < min(policy.canaries, len(boards)):
            canaries += there[: policy.canaries - proven]
        else:
            others += there
    return canaries, others


def _by_kind(plan: Plan) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for board in plan.boards:
        found.setdefault(board.kind, []).append(board.name)
    return found


def summary(progress: Progress) -> str:
    """How many boards are in each state, in words."""
    counts = Counter(record.state for record in progress.records.values())
    return ", ".join(f"{count} {state}" for state, count in counts.items())

"""The state machine of a rollout and the rule that chooses the next step; does no I/O.

Canaries of each kind of board go first and are watched, then batches, each watched. Boards that did
not answer are retried at the end. The executor journals each event (journal.py) and calls `decide`
again, also after a crash of the host: the same events give the same state. See docs/fleets.md.
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

# (current state, event) -> new state; any other pair is an error.
TRANSITIONS: Mapping[tuple[State, EventKind], State] = {
    ("waiting", "began"): "going",
    ("asleep", "began"): "going",  # the board may be reachable again
    ("lost", "began"): "going",
    ("going", "began"): "going",  # the host was interrupted; the board knows its own progress
    ("going", "slept"): "asleep",  # unreachable before the switch began
    ("going", "lost"): "lost",  # unreachable after the switch may have begun
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
    """A board of the rollout; boards of one `kind`, a profile's name, get the same release."""

    name: str
    kind: str


@dataclass(frozen=True)
class RolloutPlan:
    """The goal of a rollout, written to disk before it begins.

    `asked` is a hash of the request: repeating the same command resumes the rollout. `releases`
    maps each kind of board to its release; `name` is the deployment name of the model, empty for
    the default one. `folder` is the folder of releases that the boards fetch from, empty if they
    are pushed to.
    """

    id: str
    asked: str
    model: str
    boards: tuple[PlannedBoard, ...]
    releases: Mapping[str, str]
    name: str = ""
    folder: str = ""


@dataclass(frozen=True)
class Share:
    """A number of boards, or a percentage of them."""

    number: float
    percent: bool

    def of(self, total: int) -> float:
        return self.number * total / 100 if self.percent else self.number


def parse_share(text: str, option: str) -> Share:
    """Parses `20%` or `50`; InputError names the option."""
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
    """Risk limits of a rollout: number of canaries per kind, batch size, and number of failed
    boards that stops it. A single failed canary stops it."""

    canaries: int = 1
    batch: Share = Share(20, True)
    stop_at: Share = Share(5, True)


@dataclass(frozen=True)
class BoardEvent:
    """An event of a board, as stored in the journal.

    `release` is the release intended for the board: the one of its kind, combined with the board's
    own application. `previous` is the release it ran before, "" if there was none or `release`
    already ran (`changed` is False). `saved_bytes` were not downloaded, thanks to deltas.
    """

    board: str
    kind: EventKind
    message: str = ""
    exit_code: int = 0
    release: str = ""
    previous: str = ""
    changed: bool = False
    seconds: float = 0.0
    saved_bytes: int = 0


@dataclass(frozen=True)
class BoardRecord:
    """State of a board. `ours`: this rollout installed the release and so may roll it back; boards
    that already ran it are left alone. `unheard`: a deployment may have ended without a report
    reaching the host."""

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
    saved_bytes: int = 0


@dataclass
class RolloutProgress:
    """State derived from all events so far; `due` are boards of the batch not started yet.
    `stop_wanted` says why a person wants no more boards to be touched, if so."""

    records: dict[str, BoardRecord]
    batch: tuple[str, ...] = ()
    due: set[str] = field(default_factory=set)
    ended: Verdict | None = None
    reason: str = ""
    batches: int = 0
    stop_wanted: str = ""

    @staticmethod
    def of(plan: RolloutPlan) -> RolloutProgress:
        return RolloutProgress({board.name: BoardRecord() for board in plan.boards})

    def begin(self, boards: Sequence[str], canary: bool) -> None:
        """Starts a batch."""
        self.batch, self.due = tuple(boards), set(boards)
        self.batches += 1
        for name in boards:
            self.records[name] = replace(self.records[name], canary=canary)

    def take(self, event: BoardEvent) -> None:
        """Applies an event; ValueError if the table has no matching transition."""
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
            previous = event.previous or old.previous
            new = replace(new, previous=previous, ours=ours, saved_bytes=event.saved_bytes)
        self.records[event.board] = replace(new, seconds=old.seconds + event.seconds)

    def end(self, verdict: Verdict, reason: str = "") -> None:
        self.ended, self.reason = verdict, reason

    def names(self, *states: State, among: Sequence[str] | None = None) -> list[str]:
        """Boards in one of the states, in the order of the plan or of `among`."""
        where = self.records if among is None else among
        return [name for name in where if self.records[name].state in states]


@dataclass(frozen=True)
class BeginBatch:
    """Start a new batch; `again`: it retries boards that were asleep or lost, if time allows."""

    boards: tuple[str, ...]
    canary: bool
    again: bool = False


@dataclass(frozen=True)
class DeployBoards:
    """Deploy to these boards of the batch."""

    boards: tuple[str, ...]


@dataclass(frozen=True)
class WatchBoards:
    """Watch these boards of the batch, which run the release."""

    boards: tuple[str, ...]
    canary: bool


@dataclass(frozen=True)
class End:
    """The rollout is over."""

    verdict: Verdict
    reason: str = ""


Step = BeginBatch | DeployBoards | WatchBoards | End


def decide(plan: RolloutPlan, policy: Policy, progress: RolloutProgress) -> Step:
    """The next step; a pure function of the events."""
    if progress.ended:
        return End(progress.ended, progress.reason)
    if progress.stop_wanted:
        return End("stopped", progress.stop_wanted)
    if interrupted := progress.names("going", among=progress.batch):
        return DeployBoards(tuple(interrupted))
    if reason := why_stop(plan, policy, progress):
        return End("stopped", reason)
    if due := [name for name in progress.batch if name in progress.due]:
        return DeployBoards(tuple(due))
    if fresh := progress.names("watched", among=progress.batch):
        return WatchBoards(tuple(fresh), any(progress.records[name].canary for name in fresh))
    return _next_batch(plan, policy, progress)


def why_stop(plan: RolloutPlan, policy: Policy, progress: RolloutProgress) -> str:
    """Why no more boards may be touched; empty if they may."""
    if progress.stop_wanted:
        return progress.stop_wanted
    for name in progress.names(*BROKEN):
        record = progress.records[name]
        if record.canary:
            return f"canary '{name}' {record.state}: {record.message}"
    broken, total = len(progress.names(*BROKEN)), len(plan.boards)
    if broken > policy.stop_at.of(total):
        return f"{broken} of {total} boards failed or were lost"
    return ""


def _next_batch(plan: RolloutPlan, policy: Policy, progress: RolloutProgress) -> Step:
    canaries, others = _candidates(plan, policy, progress, "waiting")
    if canaries:
        return BeginBatch(tuple(canaries), True)
    if others:
        size = max(1, math.ceil(policy.batch.of(len(plan.boards))))
        return BeginBatch(tuple(others[:size]), False)
    canaries, others = _candidates(plan, policy, progress, *ABSENT)
    if not (canaries or others):
        return End("finished")

    def tries(names: Sequence[str]) -> float:
        return min((progress.records[name].tries for name in names), default=math.inf)

    first = tries(canaries) <= tries(others)  # a kind that never comes back must not block others
    return BeginBatch(tuple(canaries if first else others), first, again=True)


def _candidates(
    plan: RolloutPlan, policy: Policy, progress: RolloutProgress, *states: State
) -> tuple[list[str], list[str]]:
    """Boards in these states that may be touched next, least tried first: canaries of kinds that
    need more of them, and all others."""
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


def _by_kind(plan: RolloutPlan) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for board in plan.boards:
        found.setdefault(board.kind, []).append(board.name)
    return found


def summary(progress: RolloutProgress) -> str:
    """Number of boards in each state, as text."""
    counts = Counter(record.state for record in progress.records.values())
    return ", ".join(f"{count} {state}" for state, count in counts.items())

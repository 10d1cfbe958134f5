"""Runs the same work on many boards in parallel, with bounded concurrency.

Each active board has a thread, since the work is mostly waiting. All events are delivered in the
caller's thread, so it can draw and write journals without locks; a worker does not start its next
board until the previous outcome has been handled.

A failed board is an ordinary outcome. Ctrl-C, and errors not caused by a board (such as a full disk
on the host), stop the run: no further board starts, and the outcomes so far are returned together
with the cause, so that they can be shown before the command exits.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from edgekit.device.runtime.errors import DeviceError
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.connections import connect_to_entry
from edgekit.host.deploy.inventory import BoardEntry
from edgekit.host.errors import EdgekitError
from edgekit.host.fleet.cancelable import Cancelable, CanceledError

PARALLEL = 32  # default number of boards at a time: the work is mostly waiting

_T = TypeVar("_T")
_TICK_SECONDS = 0.2
_GRACE_SECONDS = 10.0  # for active boards to finish after their connections are closed
_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class BoardOutcome(Generic[_T]):
    """The outcome for one board: `value` is the result of the work, `error` the reason it failed.

    Both are None if `canceled`: the run was stopped before the board started or while it was
    active. `seconds` is the time spent on it, 0 if it never started.
    """

    board: str
    value: _T | None = None
    error: EdgekitError | DeviceError | None = None
    canceled: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the work succeeded."""
        return self.error is None and not self.canceled


@dataclass(frozen=True)
class FleetRun(Generic[_T]):
    """The outcome of each board, in the given order. `stopped` is the exception that ended the run
    early: KeyboardInterrupt or an error not caused by a board."""

    outcomes: tuple[BoardOutcome[_T], ...]
    stopped: BaseException | None = None

    @property
    def failed(self) -> tuple[BoardOutcome[_T], ...]:
        """Outcomes with an error."""
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)


class Observer(Protocol):
    """Receives events, in the thread that called `run_on`."""

    def began(self, board: str) -> None:
        """Work on a board started."""

    def stage_changed(self, board: str, stage: str) -> None:
        """A board entered a new stage."""

    def ended(self, outcome: BoardOutcome[Any]) -> None:
        """Work on a board ended."""

    def tick(self) -> None:
        """Called at least every 0.2 s."""


class Silent:
    """Ignores all events."""

    def began(self, board: str) -> None: ...
    def stage_changed(self, board: str, stage: str) -> None: ...
    def ended(self, outcome: BoardOutcome[Any]) -> None: ...
    def tick(self) -> None: ...


class Turn:
    """An active board. Once it is canceled, calls over its connection and `tell` raise
    CanceledError."""

    def __init__(self, board: BoardEntry, tell: Callable[[str, str], None]) -> None:
        self.board = board
        self._tell = tell
        self._cancelable: Cancelable | None = None
        self.canceled = False
        self._lock = threading.Lock()

    @cached_property
    def device(self) -> Board:
        """The board; connects on first use."""
        found = connect_to_entry(self.board)
        with self._lock:
            self._cancelable = Cancelable(found.transport)
            if self.canceled:
                self._cancelable.cancel()
        return found.over(self._cancelable)

    def tell(self, stage: str) -> None:
        """Reports the current stage to the watcher."""
        if self.canceled:
            raise CanceledError(self.board.name)
        self._tell(self.board.name, stage)

    def cancel(self) -> None:
        """Aborts the running call and refuses further ones; callable from any thread."""
        with self._lock:
            self.canceled = True
            cancelable = self._cancelable
        if cancelable is not None:
            cancelable.cancel()

    def close(self) -> None:
        """Closes the connection."""
        if self._cancelable is not None:
            with contextlib.suppress(EdgekitError, OSError):
                self._cancelable.close()


def run_on(
    boards: Sequence[BoardEntry],
    work: Callable[[Turn], _T],
    *,
    parallel: int = PARALLEL,
    watch: Observer | None = None,
    stop: Callable[[BoardOutcome[_T]], bool] | None = None,
) -> FleetRun[_T]:
    """Runs `work` on each board, at most `parallel` at a time, and returns the outcomes.

    EdgekitError and DeviceError count as failures of the board; any other exception raised by
    `work`, `watch` or `stop` ends the run. `stop` is called after each outcome, before the worker
    starts another board: if it returns True, no further board starts, while active ones finish
    normally. Ctrl-C closes the connections of active boards.
    """
    return _Crew(boards, work, watch or Silent(), stop or (lambda _: False)).run(parallel)


@dataclass(frozen=True)
class _Began:
    board: str


@dataclass(frozen=True)
class _StageChange:
    board: str
    stage: str


@dataclass(frozen=True)
class _Ended:
    outcome: BoardOutcome[Any]
    heard: threading.Event


class _Crew(Generic[_T]):
    """Worker threads that take boards from a queue, and the thread that handles their events."""

    def __init__(
        self,
        boards: Sequence[BoardEntry],
        work: Callable[[Turn], _T],
        watch: Observer,
        stop: Callable[[BoardOutcome[_T]], bool],
    ) -> None:
        self._boards = boards
        self._waiting = deque(boards)
        self._work = work
        self._watch = watch
        self._stop = stop
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._turns: dict[str, Turn] = {}
        self._found: dict[str, BoardOutcome[_T]] = {}  # written by workers: an interrupt loses none
        self._stopped: BaseException | None = None

    def run(self, parallel: int) -> FleetRun[_T]:
        threads = [
            threading.Thread(target=self._take_boards, name=f"fleet-{i}", daemon=True)
            for i in range(min(parallel, len(self._boards)))
        ]
        for thread in threads:
            thread.start()
        try:
            self._handle_events(threads)
        except BaseException as stopped:
            self._stopped = self._stopped or stopped
            self._interrupt(threads)
        outcomes = tuple(
            self._found.get(board.name) or BoardOutcome(board.name, canceled=True)
            for board in self._boards
        )
        return FleetRun(outcomes, self._stopped)

    def _handle_events(self, threads: Sequence[threading.Thread]) -> None:
        while any(thread.is_alive() for thread in threads) or not self._events.empty():
            with contextlib.suppress(queue.Empty):
                self._handle_event(self._events.get(timeout=_TICK_SECONDS))
                while True:
                    self._handle_event(self._events.get_nowait())
            self._watch.tick()

    def _handle_event(self, event: object) -> None:
        if isinstance(event, _Began):
            self._watch.began(event.board)
        elif isinstance(event, _StageChange):
            self._watch.stage_changed(event.board, event.stage)
        elif isinstance(event, _Ended):
            try:
                self._watch.ended(event.outcome)
                if not event.outcome.canceled and self._stop(event.outcome):
                    self._waiting.clear()
            finally:
                event.heard.set()

    def _interrupt(self, threads: Sequence[threading.Thread]) -> None:
        """Starts no more boards and closes the connections of active ones repeatedly, since one may
        have been about to connect. A second Ctrl-C stops waiting."""
        self._waiting.clear()
        end = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(KeyboardInterrupt):
            while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
                self._release_workers()
                for turn in list(self._turns.values()):
                    threading.Thread(target=turn.cancel, daemon=True).start()
                again = time.monotonic() + _AGAIN_SECONDS
                for thread in threads:
                    thread.join(max(again - time.monotonic(), 0.0))

    def _release_workers(self) -> None:
        """Releases workers that wait for their outcome to be handled."""
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._events.get_nowait()
                if isinstance(event, _Ended):
                    event.heard.set()

    def _take_boards(self) -> None:
        while True:
            try:
                board = self._waiting.popleft()
            except IndexError:
                return
            turn = Turn(board, self._stage_changed)
            self._turns[board.name] = turn
            self._events.put(_Began(board.name))
            outcome = self._run_work(turn)
            self._found[board.name] = outcome
            self._turns.pop(board.name)
            turn.close()
            ended = _Ended(outcome, threading.Event())
            self._events.put(ended)
            ended.heard.wait()

    def _stage_changed(self, board: str, stage: str) -> None:
        self._events.put(_StageChange(board, stage))

    def _run_work(self, turn: Turn) -> BoardOutcome[_T]:
        value, error, canceled = None, None, False
        began = time.monotonic()
        try:
            value = self._work(turn)
        except CanceledError:
            canceled = True
        except (EdgekitError, DeviceError) as found:
            canceled = turn.canceled  # the work was aborted, so its error is a consequence
            error = None if canceled else found
        except BaseException as trouble:
            self._waiting.clear()
            self._stopped = self._stopped or trouble
            canceled = True
        return BoardOutcome(turn.board.name, value, error, canceled, time.monotonic() - began)

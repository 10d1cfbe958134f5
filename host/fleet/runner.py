"""The same work on many boards at once, at most so many at a time.

One thread per board at work, since all that they do is wait for boards. The caller's thread
watches: it is told everything there, so that it may draw and write journals without locks, and no
thread takes its next board before it was told of the last one.

A board that fails is an outcome among others. Ctrl-C, and trouble that is not a board's (a full
disk at home), end the whole: no further board begins, and what is known of each comes back with
the reason, so that it can be shown before the command ends.
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

PARALLEL = 32  # boards at a time: they wait more than they work

_T = TypeVar("_T")
_TICK_SECONDS = 0.2
_GRACE_SECONDS = 10.0  # for boards at work to end once their links are closed
_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """What became of one board: `value` is what the work gave, `error` why there is none.

    Neither is there for one that is `canceled`: it had not begun, or was cut in the middle, when
    the whole was stopped. `seconds` are those of its turn, 0 if it had none.
    """

    board: str
    value: _T | None = None
    error: EdgekitError | DeviceError | None = None
    canceled: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the work was done."""
        return self.error is None and not self.canceled


@dataclass(frozen=True)
class FleetRun(Generic[_T]):
    """The outcome of each board, in the order they were given. `stopped` is what ended the whole
    before its end: KeyboardInterrupt, or what went wrong that was no board's fault."""

    outcomes: tuple[Outcome[_T], ...]
    stopped: BaseException | None = None

    @property
    def failed(self) -> tuple[Outcome[_T], ...]:
        """Boards with an error."""
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)


class Watch(Protocol):
    """Is told what goes on, in the thread that called `run_on`."""

    def began(self, board: str) -> None:
        """The turn of a board began."""

    def told(self, board: str, stage: str) -> None:
        """What is done there now."""

    def ended(self, outcome: Outcome[Any]) -> None:
        """The turn of a board ended."""

    def tick(self) -> None:
        """Time went by: called at least every 0.2 s."""


class Silent:
    """Watches without a word."""

    def began(self, board: str) -> None: ...
    def told(self, board: str, stage: str) -> None: ...
    def ended(self, outcome: Outcome[Any]) -> None: ...
    def tick(self) -> None: ...


class Turn:
    """One board at work. Calls over its connection raise CanceledError once the whole is stopped
    by force, as `tell` does."""

    def __init__(self, board: BoardEntry, tell: Callable[[str, str], None]) -> None:
        self.board = board
        self._tell = tell
        self._cancelable: Cancelable | None = None
        self.canceled = False
        self._lock = threading.Lock()

    @cached_property
    def device(self) -> Board:
        """The board itself; nothing is sent before it is first asked for something."""
        found = connect_to_entry(self.board)
        with self._lock:
            self._cancelable = Cancelable(found.transport)
            if self.canceled:
                self._cancelable.cancel()
        return found.over(self._cancelable)

    def tell(self, stage: str) -> None:
        """Says what is done now, for whoever watches."""
        if self.canceled:
            raise CanceledError(self.board.name)
        self._tell(self.board.name, stage)

    def cancel(self) -> None:
        """Ends what the board is asked for, and refuses more; from any thread."""
        with self._lock:
            self.canceled = True
            cancelable = self._cancelable
        if cancelable is not None:
            cancelable.cancel()

    def close(self) -> None:
        """Ends the connection."""
        if self._cancelable is not None:
            with contextlib.suppress(EdgekitError, OSError):
                self._cancelable.close()


def run_on(
    boards: Sequence[BoardEntry],
    work: Callable[[Turn], _T],
    *,
    parallel: int = PARALLEL,
    watch: Watch | None = None,
    stop: Callable[[Outcome[_T]], bool] | None = None,
) -> FleetRun[_T]:
    """Does `work` on each board, at most `parallel` at a time, and says what became of each.

    EdgekitError and DeviceError are the board's; any other exception of the work, or of `watch`
    and `stop`, ends the whole. `stop` is asked after each outcome, before that thread takes another
    board: True, and no further board begins while those at work end in peace. Ctrl-C closes the
    links of those at work.
    """
    return _Crew(boards, work, watch or Silent(), stop or (lambda _: False)).run(parallel)


@dataclass(frozen=True)
class _Began:
    board: str


@dataclass(frozen=True)
class _Told:
    board: str
    stage: str


@dataclass(frozen=True)
class _Ended:
    outcome: Outcome[Any]
    heard: threading.Event


class _Crew(Generic[_T]):
    """Threads that take boards until there are none left, and the thread that watches them."""

    def __init__(
        self,
        boards: Sequence[BoardEntry],
        work: Callable[[Turn], _T],
        watch: Watch,
        stop: Callable[[Outcome[_T]], bool],
    ) -> None:
        self._boards = boards
        self._waiting = deque(boards)
        self._work = work
        self._watch = watch
        self._stop = stop
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._turns: dict[str, Turn] = {}
        self._found: dict[str, Outcome[_T]] = {}  # by the threads: an interrupt loses none
        self._stopped: BaseException | None = None

    def run(self, parallel: int) -> FleetRun[_T]:
        threads = [
            threading.Thread(target=self._take_boards, name=f"fleet-{i}", daemon=True)
            for i in range(min(parallel, len(self._boards)))
        ]
        for thread in threads:
            thread.start()
        try:
            self._attend(threads)
        except BaseException as stopped:
            self._stopped = self._stopped or stopped
            self._cut(threads)
        outcomes = tuple(
            self._found.get(board.name) or Outcome(board.name, canceled=True)
            for board in self._boards
        )
        return FleetRun(outcomes, self._stopped)

    def _attend(self, threads: Sequence[threading.Thread]) -> None:
        while any(thread.is_alive() for thread in threads) or not self._events.empty():
            with contextlib.suppress(queue.Empty):
                self._heard(self._events.get(timeout=_TICK_SECONDS))
                while True:
                    self._heard(self._events.get_nowait())
            self._watch.tick()

    def _heard(self, event: object) -> None:
        if isinstance(event, _Began):
            self._watch.began(event.board)
        elif isinstance(event, _Told):
            self._watch.told(event.board, event.stage)
        elif isinstance(event, _Ended):
            try:
                self._watch.ended(event.outcome)
                if not event.outcome.canceled and self._stop(event.outcome):
                    self._waiting.clear()
            finally:
                event.heard.set()

    def _cut(self, threads: Sequence[threading.Thread]) -> None:
        """Begins no more and closes the links of those at work, again and again: one may have been
        about to connect. A second Ctrl-C waits for nobody."""
        self._waiting.clear()
        end = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(KeyboardInterrupt):
            while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
                self._release()
                for turn in list(self._turns.values()):
                    threading.Thread(target=turn.cancel, daemon=True).start()
                again = time.monotonic() + _AGAIN_SECONDS
                for thread in threads:
                    thread.join(max(again - time.monotonic(), 0.0))

    def _release(self) -> None:
        """Lets threads go that wait for someone to hear what became of their boards."""
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
            turn = Turn(board, self._told)
            self._turns[board.name] = turn
            self._events.put(_Began(board.name))
            outcome = self._outcome(turn)
            self._found[board.name] = outcome
            self._turns.pop(board.name)
            turn.close()
            ended = _Ended(outcome, threading.Event())
            self._events.put(ended)
            ended.heard.wait()

    def _told(self, board: str, stage: str) -> None:
        self._events.put(_Told(board, stage))

    def _outcome(self, turn: Turn) -> Outcome[_T]:
        value, error, canceled = None, None, False
        began = time.monotonic()
        try:
            value = self._work(turn)
        except CanceledError:
            canceled = True
        except (EdgekitError, DeviceError) as found:
            canceled = turn.canceled  # the work was cut, whatever it says of it
            error = None if canceled else found
        except BaseException as trouble:
            self._waiting.clear()
            self._stopped = self._stopped or trouble
            canceled = True
        return Outcome(turn.board.name, value, error, canceled, time.monotonic() - began)

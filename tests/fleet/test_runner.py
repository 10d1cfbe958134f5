"""The same work on many boards: bounded concurrency, all boards accounted for, orderly stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.errors import BusyError
from edgekit.host.deploy.inventory import BoardEntry
from edgekit.host.errors import EdgekitError, UnreachableError
from edgekit.host.fleet import BoardOutcome, CanceledError, Silent, Turn, run_on
from tests.support.patience import AMPLE

SECONDS = AMPLE


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))


def fleet(count: int) -> list[BoardEntry]:
    return [BoardEntry(f"b{i}", "local", transport="local") for i in range(count)]


class Record(Silent):
    """Records progress events and calls `act` with each."""

    def __init__(self, act: Any = lambda _: None) -> None:
        self.told_of: list[tuple[str, ...]] = []
        self.threads: set[int] = set()
        self._act = act

    def _keep(self, *entry: str) -> None:
        self.told_of.append(entry)
        self.threads.add(threading.get_ident())
        self._act(entry)

    def began(self, board: str) -> None:
        self._keep("began", board)

    def stage_changed(self, board: str, stage: str) -> None:
        self._keep("stage", board, stage)

    def ended(self, outcome: BoardOutcome[Any]) -> None:
        self._keep("ended", outcome.board)


def states(outcomes: tuple[BoardOutcome[Any], ...]) -> list[str]:
    return ["ok" if o.ok else "canceled" if o.canceled else "failed" for o in outcomes]


def test_each_board_once_in_order_and_never_more_than_so_many_at_once() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def work(turn: Turn) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return turn.board.name.upper()

    found = run_on(fleet(30), work, parallel=4)
    assert [o.value for o in found.outcomes] == [f"B{i}" for i in range(30)]
    assert most == 4
    assert all(o.seconds >= 0.01 for o in found.outcomes)
    assert (found.stopped, found.failed) == (None, ())


def test_none_is_no_work() -> None:
    assert run_on([], lambda turn: 1).outcomes == ()


def test_a_board_that_fails_is_its_own_trouble() -> None:
    def work(turn: Turn) -> int:
        if turn.board.name == "b1":
            raise UnreachableError("asleep")
        if turn.board.name == "b2":
            raise BusyError("held")
        return 1

    found = run_on(fleet(5), work, parallel=2)
    assert states(found.outcomes) == ["ok", "failed", "failed", "ok", "ok"]
    assert [str(o.error) for o in found.failed] == ["asleep", "held"]
    assert found.stopped is None


def test_the_watcher_is_called_in_the_calling_thread() -> None:
    def work(turn: Turn) -> None:
        turn.tell("probe")

    record = Record()
    run_on(fleet(3), work, parallel=3, watch=record)
    assert record.threads == {threading.get_ident()}
    for board in ("b0", "b1", "b2"):
        mine = [entry for entry in record.told_of if entry[1] == board]
        assert mine == [("began", board), ("stage", board, "probe"), ("ended", board)]


def test_stop_begins_no_more_and_lets_those_at_work_end() -> None:
    begun, shown = threading.Barrier(2), threading.Event()

    def work(turn: Turn) -> str:
        begun.wait(SECONDS)
        if turn.board.name == "b0":
            raise UnreachableError("bad release")
        shown.wait(SECONDS)  # still working when the other board fails
        return "whole"

    def stop(outcome: BoardOutcome[str]) -> bool:
        shown.set()
        return not outcome.ok

    found = run_on(fleet(8), work, parallel=2, stop=stop)
    assert states(found.outcomes) == ["failed", "ok", *["canceled"] * 6]
    assert found.stopped is None


def test_an_error_on_the_host_ends_the_run_and_returns_known_results() -> None:
    def work(turn: Turn) -> int:
        if turn.board.name == "b2":
            raise OSError(28, "No space left on device")
        return 1

    found = run_on(fleet(6), work, parallel=1)
    assert states(found.outcomes) == ["ok", "ok", *["canceled"] * 4]
    assert isinstance(found.stopped, OSError)


def test_ctrl_c_cuts_the_links_of_those_at_work() -> None:
    after: list[str] = []

    def work(turn: Turn) -> int:
        if turn.board.name == "b0":
            return 1
        transport = turn.device.transport
        turn.tell("asleep")
        transport.run(["sleep", str(SECONDS)], deadline=2 * SECONDS)
        try:
            transport.run(["true"], deadline=1)
        except CanceledError:
            after.append(turn.board.name)
            raise
        return 2

    def interrupt(entry: tuple[str, ...]) -> None:
        asleep.append(entry) if entry[0] == "stage" else None
        if len(asleep) == 2:
            raise KeyboardInterrupt

    asleep: list[tuple[str, ...]] = []
    began = time.monotonic()
    found = run_on(fleet(5), work, parallel=2, watch=Record(interrupt))
    assert isinstance(found.stopped, KeyboardInterrupt)
    assert states(found.outcomes) == ["ok", *["canceled"] * 4]
    assert sorted(after) == ["b1", "b2"]  # canceled links are not reopened
    assert time.monotonic() - began < SECONDS


def test_what_cut_work_says_of_it_is_no_failure_of_the_board() -> None:
    def work(turn: Turn) -> None:
        turn.tell("at work")
        turn.device.transport.run(["sleep", str(SECONDS)], deadline=2 * SECONDS)
        raise EdgekitError("expected an answer, found none")

    def interrupt(entry: tuple[str, ...]) -> None:
        if entry[0] == "stage":
            raise KeyboardInterrupt

    found = run_on(fleet(1), work, watch=Record(interrupt))
    assert (states(found.outcomes), found.failed) == (["canceled"], ())

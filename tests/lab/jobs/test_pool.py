"""Parallel jobs: leased boards take turns, slices run in sequence, measurements accumulate."""

from __future__ import annotations

from collections import deque
from typing import Any

from edgekit.device.version import VERSION
from edgekit.host.lab.jobs.pool import work_off
from edgekit.host.lab.jobs.task import Sent, Task, TaskReport, run_task
from edgekit.host.lab.jobs.tuning import Tuning, tune_boards


class _Pool:
    """A fake pool: tasks end in FIFO order, each with the next of `reports`."""

    remote = False

    def __init__(self, *reports: TaskReport) -> None:
        self._reports = deque(reports)
        self._running: deque[Task] = deque()
        self.started: list[Task] = []
        self.most = 0

    def start(self, task: Task) -> None:
        self.started.append(task)
        self._running.append(task)
        self.most = max(self.most, len(self._running))

    def wait(self) -> tuple[Task, TaskReport]:
        return self._running.popleft(), self._reports.popleft()

    def close(self) -> None:
        pass


def _done(**document: Any) -> TaskReport:
    return TaskReport(0, document)


def test_tasks_of_a_leased_board_take_turns() -> None:
    tasks = [Task(("a",), "one", leased=True), Task(("b",), "one", leased=True)]
    tasks.append(Task(("c",), "two", leased=True))
    pool = _Pool(*[_done()] * 3)
    work_off(pool, tasks, lambda task, report: None)
    assert [task.command for task in pool.started] == [("a",), ("c",), ("b",)]
    assert pool.most == 2


def test_tasks_that_lease_nothing_run_side_by_side() -> None:
    pool = _Pool(*[_done()] * 3)
    work_off(pool, [Task((word,), "one") for word in "abc"], lambda task, report: None)
    assert pool.most == 3


def test_what_follows_a_task_comes_before_what_waits() -> None:
    first, waiting = (Task((word,), "one", leased=True) for word in ("first", "waiting"))
    following = Task(("following",), "one", leased=True)
    pool = _Pool(*[_done()] * 3)
    work_off(pool, [first, waiting], lambda task, report: following if task is first else None)
    assert [task.command[0] for task in pool.started] == ["first", "following", "waiting"]


def _tuned(*reports: TaskReport, seconds: float = 1000.0) -> tuple[_Pool, Tuning, list[int]]:
    pool, heard = _Pool(*reports), list[int]()
    command = ("tune", "gemm", "--shapes", Sent("shapes.txt"))
    (found,) = tune_boards(
        pool, ["pi"], command, {"shapes.txt": b""}, seconds, lambda t: heard.append(t.slices)
    )
    return pool, found, heard


def test_a_board_is_tuned_in_slices_until_it_is_finished() -> None:
    pool, found, heard = _tuned(_done(measured=3), _done(measured=4, finished=True))
    assert (found.measured, found.slices, heard) == (7, 2, [1, 2])
    assert found.ok and found.document["finished"]
    assert all(task.leased and task.board == "pi" for task in pool.started)
    assert pool.started[0].command[-5:] == ("--board", "pi", "--budget", "60s", "--json")


def test_a_slice_is_no_longer_than_the_budget() -> None:
    pool, _, _ = _tuned(_done(finished=True), seconds=7.0)
    assert pool.started[0].command[-2] == "7s"


def test_a_failed_slice_is_the_last_one() -> None:
    _, found, heard = _tuned(_done(measured=3), TaskReport(6, message="pi: no answer"))
    assert (found.ok, found.measured, heard) == (False, 3, [1, 2])
    assert found.document == {}


def test_a_command_that_answers_no_json_has_failed() -> None:
    found = run_task(Task(("--version",), "pi"), lambda: False, "w")
    assert found.code == 1 and found.document is None
    assert found.message.startswith("worker w: expected a JSON document, found: ")
    assert VERSION in found.message


def test_an_error_of_the_command_is_the_last_line_that_it_said() -> None:
    found = run_task(Task(("status", "--board", "nowhere"), "nowhere"), lambda: False)
    assert found.code == 2 and "nowhere" in found.message
    assert not found.message.startswith("edgekit:")

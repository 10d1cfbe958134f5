"""Runs jobs: several at a time on this host, or on a cluster if one is named."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from edgekit.host.lab.jobs.task import Task, TaskReport, run_task


class Pool(Protocol):
    """Runs tasks concurrently; `start` and `wait` are called from one thread. `remote`: workers
    may have histories and caches different from this host's."""

    @property
    def remote(self) -> bool: ...

    def start(self, task: Task) -> None:
        """Queues a task."""
        ...

    def wait(self) -> tuple[Task, TaskReport]:
        """Waits for the next task to finish, in any order."""
        ...

    def close(self) -> None:
        """Stops running tasks; their measurements are kept."""
        ...


class LocalPool:
    """At most `size` concurrent processes on this host; only one per leased board."""

    remote = False

    def __init__(self, size: int | None = None) -> None:
        self._threads = ThreadPoolExecutor(size or os.cpu_count() or 1)
        self._stop = threading.Event()
        self._ended: queue.SimpleQueue[tuple[Task, Future[TaskReport]]] = queue.SimpleQueue()

    def start(self, task: Task) -> None:
        future = self._threads.submit(run_task, task, self._stop.is_set)
        future.add_done_callback(lambda done: self._ended.put((task, done)))

    def wait(self) -> tuple[Task, TaskReport]:
        task, done = self._ended.get()
        return task, done.result()

    def close(self) -> None:
        self._stop.set()
        self._threads.shutdown(cancel_futures=True)


def work_off(
    pool: Pool,
    tasks: Iterable[Task],
    then: Callable[[Task, TaskReport], Task | None],
) -> None:
    """Runs tasks, and the follow-up that `then` returns for each, until there are none left.

    Only one task per leased board starts at a time; the others wait here without occupying a
    worker.
    """
    waiting = list(tasks)
    busy: set[str] = set()
    running = 0

    def begin() -> int:
        begun = 0
        for task in list(waiting):
            if task.leased and task.board in busy:
                continue
            waiting.remove(task)
            if task.leased:
                busy.add(task.board)
            pool.start(task)
            begun += 1
        return begun

    running += begin()
    while running:
        task, report = pool.wait()
        running -= 1
        if task.leased:
            busy.discard(task.board)
        if following := then(task, report):
            waiting.insert(0, following)
        running += begin()

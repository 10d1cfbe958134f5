"""Runs jobs on a Dask cluster of hosts that reach the boards and have the same edgekit.

Each board has one lease in the cluster, which the scheduler reclaims when a worker dies. A worker
reaches the boards in its own inventory and those that run on it.
"""

from __future__ import annotations

import queue
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgekit.host.common.optional import optional
from edgekit.host.deploy.connections import connect_to
from edgekit.host.errors import EdgekitError, InputError, UnreachableError
from edgekit.host.lab.jobs.task import Task, TaskReport, lost, run_task

SCHEMES = ("tcp://", "tls://")
_CONNECT_SECONDS = 10.0
_ALONE_SECONDS = 60.0  # without a suitable worker, before a task is given up
_LEASE_SECONDS = 3600.0  # wait for a board in use by another job of the cluster
_LOOK_SECONDS = 2.0
_RETRIES = 2  # of a task whose worker was killed, in addition to Dask's own


class DaskPool:
    """A client of the scheduler at `address`.

    Raises InputError without the package `distributed`, and UnreachableError if no scheduler
    answers within `connect_seconds` or it has no workers.
    """

    remote = True

    def __init__(self, address: str, connect_seconds: float = _CONNECT_SECONDS) -> None:
        (distributed,) = optional("distributed")
        try:
            self._client = distributed.Client(
                address, timeout=connect_seconds, set_as_default=False
            )
        except (OSError, ValueError, ImportError) as error:
            raise UnreachableError(
                f"--dask: expected a Dask scheduler at {address}, found none "
                f"({type(error).__name__}); start one: dask scheduler"
            ) from None
        self._address = address
        self._stop = f"edgekit-stop-{uuid.uuid4().hex}"
        self._event = distributed.Event(self._stop, client=self._client)
        self._ended: queue.SimpleQueue[tuple[Task, Any]] = queue.SimpleQueue()
        self._futures: dict[Any, Task] = {}
        self._hosts: Mapping[str, Sequence[str]] = {}
        self._alone_since: float | None = None
        if not self._worker_addresses():
            self._client.close()
            raise UnreachableError(
                f"--dask: expected workers at {address}, found none; on a host that reaches "
                f"the boards: dask worker {address}"
            )

    def look_for(self, boards: Sequence[str]) -> None:
        """Asks the workers which boards they reach; a board's tasks run only there. InputError for
        a board that no worker reaches."""
        found: Mapping[str, list[str]] = self._client.run(_reachable_boards, list(boards))
        hosts: dict[str, list[str]] = {}
        for worker, names in found.items():
            for name in names:
                hosts.setdefault(name, []).append(_host_of(worker))
        for name in boards:
            if name not in hosts:
                raise InputError(
                    f"--dask: expected a worker that knows board '{name}', found none of "
                    f"{len(found)}; add it there: edgekit board add {name}"
                )
        self._hosts = hosts

    def start(self, task: Task) -> None:
        where = self._hosts.get(task.board)
        future = self._client.submit(
            _run_leased, task, self._stop, pure=False, retries=_RETRIES, workers=where
        )
        self._futures[future] = task
        future.add_done_callback(lambda done: self._ended.put((task, done)))

    def wait(self) -> tuple[Task, TaskReport]:
        while True:
            try:
                task, future = self._ended.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if given_up := self._without_workers():
                    return given_up
                continue
            if self._futures.pop(future, None) is not None:
                return task, self._report_of(future)

    def close(self) -> None:
        if self._futures:
            self._event.set()
            for future in self._futures:
                future.cancel()
        self._client.close()

    def _worker_addresses(self) -> list[str]:
        return list(self._client.scheduler_info(n_workers=-1)["workers"])

    def _without_workers(self) -> tuple[Task, TaskReport] | None:
        """Gives up and returns a task that no suitable worker has been available for too long."""
        hosts = {_host_of(worker) for worker in self._worker_addresses()}
        for future, task in self._futures.items():
            if hosts & set(self._hosts.get(task.board, hosts)):
                continue
            now = time.monotonic()
            self._alone_since = self._alone_since or now
            if now - self._alone_since < _ALONE_SECONDS:
                return None
            del self._futures[future]
            future.cancel()
            return task, lost(
                f"{self._address}: expected a worker that reaches '{task.board}', found none for "
                f"{_ALONE_SECONDS:.0f} s; start one again, and the same command resumes"
            )
        self._alone_since = None
        return None

    def _report_of(self, future: Any) -> TaskReport:
        try:
            report: TaskReport = future.result()
        except Exception as error:  # Dask's errors vary if a worker died or lacks a package
            text = str(error).strip().splitlines() or [type(error).__name__]
            return lost(
                f"{self._address}: expected a worker to end the task, found "
                f"{type(error).__name__}: {text[0]}"
            )
        return report


def _run_leased(task: Task, stop: str) -> TaskReport:
    """Runs a task on a worker while holding the board's lease."""
    from distributed import Event, Semaphore, get_worker

    name = f"{socket.gethostname()} ({get_worker().address})"
    event = Event(stop)
    asked = 0.0

    def stopped() -> bool:
        nonlocal asked
        if time.monotonic() - asked < _LOOK_SECONDS:
            return False
        asked = time.monotonic()
        return bool(event.is_set())

    if not task.leased:
        return run_task(task, stopped, name)
    lease = Semaphore(max_leases=1, name=f"edgekit board {task.board}")
    if not lease.acquire(timeout=_LEASE_SECONDS):
        return lost(
            f"board '{task.board}': expected a free lease, found it held by another job for "
            f"{_LEASE_SECONDS:.0f} s; wait for it, or stop it"
        )
    try:
        report = run_task(task, stopped, name)
    finally:
        lease.release()
    return replace(report, worker=name)


def _reachable_boards(boards: Sequence[str]) -> list[str]:
    """The boards that this worker's inventory names or that it runs; connects to none of them."""
    found = []
    for name in boards:
        try:
            connect_to(name).transport.close()
        except EdgekitError:
            continue
        found.append(name)
    return found


def _host_of(worker: str) -> str:
    """`tcp://127.0.0.1:4711` -> `127.0.0.1`"""
    return worker.rpartition("://")[2].rpartition(":")[0]

"""Supervises a release's application for as long as the release is current.

Ends, and removes its start at boot, when the current release has no application; the command that
puts one into service starts it again (service.py).

Restarts it, with growing delays, if it exits with an error, stops sending heartbeats or uses too
much memory. Consecutive failures before it ever ran long enough are blamed on the release, which is
rolled back. A new release with the same application leaves it running: it switches to the new model
by itself. Wall-clock time is not used.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, Optional, Tuple

from edgekit.device.runtime.agent.app_folder import (
    ENDED,
    NOTHING,
    RUNNING,
    STARTING,
    STOPPED,
    WAITING,
    AppFolder,
    AppState,
)
from edgekit.device.runtime.agent.application import ApplicationSpec
from edgekit.device.runtime.agent.boot import Boot
from edgekit.device.runtime.agent.child import Child, compile_runtime
from edgekit.device.runtime.agent.manifest import RUNTIME, Manifest
from edgekit.device.runtime.agent.process import Process
from edgekit.device.runtime.agent.retry import PERIOD_SECONDS
from edgekit.device.runtime.agent.sd_notify import NotifySocket
from edgekit.device.runtime.agent.status import leave
from edgekit.device.runtime.agent.store import Store, committed
from edgekit.device.runtime.agent.uploader import Uploader
from edgekit.device.runtime.errors import BusyError, DeviceError
from edgekit.device.runtime.record import Record, replace

_STATUS = "STATUS="
_MOST_SAID = 200

OnSignal = Callable[[int, Callable[..., None]], object]


class RestartPace(Record):
    """Seconds between polls, to wait after the first failure and at most, and to run before a
    release is proved; consecutive failures after which an unproved one is rolled back; watchdog
    periods until the first heartbeat, since Python and models load slowly on small boards; seconds
    between pushes of profiles."""

    look: float = 0.2
    first_wait: float = 0.5
    most_wait: float = 60.0
    proof: float = 60.0
    failures: int = 3
    first_sign: int = 5
    send: float = PERIOD_SECONDS


_PACE = RestartPace()


class Supervisor:
    """One application and its reports; `boot` starts it at boot, `clock` counts seconds,
    `on_signal` sets the handler of a signal."""

    def __init__(
        self,
        store: Store,
        boot: Boot,
        pace: RestartPace = _PACE,
        clock: Callable[[], float] = time.monotonic,
        on_signal: OnSignal = signal.signal,
    ) -> None:
        self._store, self._boot, self._pace, self._clock = store, boot, pace, clock
        self._on_signal = on_signal
        self._folder = AppFolder(store)
        self._state = AppState()
        self._manifest: Optional[Manifest] = None
        self._child: Optional[Child] = None
        self._release = ""
        self._begun = self._seen = self._due = 0.0
        self._stopping = False

    def run(self) -> None:
        """Runs until SIGTERM, a user's stop, or until no application is in service; returns at once
        if another supervisor is running."""
        self._folder.create()
        while self._run_alone() and not self._stops():
            # A commit starts a supervisor only if no name is in the lock. Commits made before this
            # process removes its name are seen here.
            if self._is_idle():
                return
            self._boot.arrange()

    def _run_alone(self) -> bool:
        """Supervises under the lock; returns False if another process has it."""
        with _try_lock(self._folder.lock) as mine, _wakeup_descriptor(self._on_signal) as wake:
            if not mine:
                return False
            self._notify_socket, uploader = NotifySocket(), self._make_uploader()
            with selectors.DefaultSelector() as selector:
                # Not what the application writes: one that never pauses would keep this process
                # busy, and the disk. While its pipe is full, it waits for the next poll.
                selector.register(wake, selectors.EVENT_READ)
                self._on_signal(signal.SIGTERM, self._request_stop)
                try:
                    while not self._stops():
                        self._poll_once()
                        if self._is_idle():
                            self._boot.forget()
                            break
                        uploader.look()
                        selector.select(self._pace.look)
                        _drain(wake)
                finally:
                    uploader.close()
                    self._end_child()
                    # The folder is gone if the model was removed.
                    if self._store.root.is_dir() and self._state.state != NOTHING:
                        self._update_state(state=STOPPED, pid=0)
                    self._notify_socket.close()
        return True

    def _stops(self) -> bool:
        return self._stopping or self._folder.stopped.exists()

    def _is_idle(self) -> bool:
        """Whether the committed release is known to have no application; not if it is damaged."""
        known = (committed(self._store) or "") == self._release
        return known and self._state.state == NOTHING

    def _make_uploader(self) -> Uploader:
        root = ["--root", str(self._store.board.absolute())]
        command = [sys.executable, "-I", "-S", str(self._folder.runtime), *root, "push-profiles"]

        def tell(line: str) -> None:
            self._folder.write_log(line.encode() + b"\n")

        return Uploader(self._store, command, tell, self._clock, self._pace.send)

    def _request_stop(self, *_: object) -> None:
        self._stopping = True

    def _poll_once(self) -> None:
        """One poll: reads messages, checks the child, and checks which release is current."""
        self._read_messages()
        if self._child is not None:
            self._check_child(self._child)
        release = committed(self._store) or ""
        if release != self._release:
            self._switch_release(release)
        if self._child is None and self._state.state == WAITING and self._clock() >= self._due:
            self._start_child()

    def _read_messages(self) -> None:
        if self._child is None:
            return
        if data := self._child.read():
            self._folder.write_log(data)
        changed: Dict[str, str] = {}
        for line in self._notify_socket.received():
            self._seen = self._clock()
            if line.startswith(_STATUS):
                changed.update(state=RUNNING, said=line[len(_STATUS) :][:_MOST_SAID])
            elif line in ("READY=1", "WATCHDOG=1"):
                changed.update(state=RUNNING)
        self._update_state(**changed)

    def _check_child(self, child: Child) -> None:
        if how := child.ended():
            self._read_messages()
            if child.succeeded:
                self._handle_exit(ENDED, how)
            else:
                self._handle_failure(child.ended())
        elif trouble := self._find_trouble(child):
            self._folder.forget_death(child.pid)
            child.end(signal.SIGABRT)  # makes Python's faulthandler print where it hung
            self._read_messages()
            self._handle_failure(trouble)
        elif self._clock() - self._begun > self._pace.proof:
            self._mark_proven()

    def _find_trouble(self, child: Child) -> str:
        spec = self._application_spec()
        periods = self._pace.first_sign if self._state.state == STARTING else 1
        limit = spec.watchdog_seconds * periods
        if limit and self._clock() - self._seen > limit:
            return f"sent no heartbeat for {limit} s"
        held = child.memory()
        if spec.memory_bytes and held > spec.memory_bytes:
            return f"used {held} bytes of memory, more than the allowed {spec.memory_bytes}"
        return ""

    def _mark_proven(self) -> None:
        if self._state.failures:
            self._update_state(failures=0)
        if self._folder.proved() != self._release:
            self._folder.prove(self._release)

    def _handle_exit(self, state: str, how: str) -> None:
        """Handles the child's end."""
        if self._child is not None:
            self._child.close()
            self._child = None
        self._update_state(state=state, pid=0, said="", last=how)
        self._folder.write_log(f"edgekit: {self._state.name} {how}\n".encode())

    def _handle_failure(self, how: str) -> None:
        self._handle_exit(WAITING, how)
        failures = self._state.failures + 1
        wait = self._pace.first_wait * 2 ** min(failures - 1, 30)
        self._due = self._clock() + min(wait, self._pace.most_wait)
        if failures >= self._pace.failures and self._folder.proved() != self._release:
            self._roll_back(
                f"{self._state.name} failed {failures} times in a row; most recently it {how}"
            )
        self._update_state(failures=failures)

    def _roll_back(self, reason: str) -> None:
        """Rolls back to the previous release, if there is one."""
        with contextlib.suppress(BusyError):  # a deploy is in progress; retried at the next failure
            back = leave(self._store, self._release, "application", reason)
            if back is not None:
                text = f"edgekit: {reason}; release {back} runs again\n"
                self._folder.write_log(text.encode())

    def _switch_release(self, release: str) -> None:
        """Handles a change of the current release."""
        try:
            manifest = self._store.manifest(release) if release else None
        except DeviceError:
            return  # removed just now, or damaged: the next poll reads the new state
        before, self._manifest, self._release = self._manifest, manifest, release
        spec = manifest.application if manifest else None
        if _application_identity(before) == _application_identity(manifest) and spec is not None:
            self._update_state(release=release, failures=0)
            return
        self._end_child()
        name = spec.name if spec else ""
        self._state = AppState(WAITING if spec else NOTHING, name, release)
        self._folder.write_state(self._state)
        self._due = self._clock()

    def _application_spec(self) -> ApplicationSpec:
        assert self._manifest is not None
        assert self._manifest.application is not None
        return self._manifest.application

    def _start_child(self) -> None:
        assert self._manifest is not None
        spec = self._application_spec()
        try:
            folder = self._folder.copy(self._manifest)
            self._folder.remove_copies(but=folder.name)
            if spec.is_python and not self._state.failures:
                compile_runtime(folder / RUNTIME)
            self._child = Child(
                spec, folder, self._folder.data, self._child_environment(spec, folder)
            )
        except (DeviceError, OSError) as error:
            self._handle_failure(f"could not be started: {error}")
            return
        self._begun = self._seen = self._clock()
        restarts = self._state.restarts + (self._state.failures > 0)
        self._update_state(
            state=STARTING,
            pid=self._child.pid,
            restarts=restarts,
            release=self._release,
            denied=self._child.denied,
        )

    def _child_environment(self, spec: ApplicationSpec, folder: Path) -> dict[str, str]:
        found = {
            "PYTHONPATH": str(folder / RUNTIME),
            "PYTHONFAULTHANDLER": "1",
            "EDGEKIT_ROOT": str(self._store.root.absolute()),
            "NOTIFY_SOCKET": self._notify_socket.name,
        }
        if spec.watchdog_seconds:
            found["WATCHDOG_USEC"] = str(spec.watchdog_seconds * 1_000_000)
        return found

    def _end_child(self) -> None:
        if self._child is not None:
            self._folder.forget_death(self._child.pid)
            self._child.end()
            self._read_messages()
            self._handle_exit(STOPPED, "was stopped")

    def _update_state(self, **changed: object) -> None:
        state = replace(self._state, **changed)
        if state != self._state:
            self._state = state
            self._folder.write_state(state)


def _application_identity(manifest: Optional[Manifest]) -> Tuple[object, ...]:
    """Compares equal for two releases with the same application."""
    if manifest is None or manifest.application is None:
        return ()
    hashes = tuple(manifest.file(path).sha256 for path in manifest.application.files)
    return (manifest.application, hashes)


@contextlib.contextmanager
def _try_lock(path: Path) -> Iterator[bool]:
    """Yields whether this process has the lock; if so, its id is in it meanwhile."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        file.truncate(0)
        this = Process.this()
        file.write(f"{this.pid} {this.started}\n")
        file.flush()
        try:
            yield True
        finally:
            file.truncate(0)


@contextlib.contextmanager
def _wakeup_descriptor(on_signal: OnSignal) -> Iterator[int]:
    """Yields a descriptor that becomes readable after SIGCHLD or SIGTERM."""
    wake, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(written)
    on_signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield wake
    finally:
        signal.set_wakeup_fd(before)
        os.close(wake)
        os.close(written)


def _drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 64):
            pass

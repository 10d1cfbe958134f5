"""Starts and stops the supervisor of a model's application, and queries its state."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from edgekit.device.runtime.agent.app_folder import (
    ENDED,
    RUNNING,
    STARTING,
    STOPPED,
    AppFolder,
    AppState,
)
from edgekit.device.runtime.agent.boot import Boot
from edgekit.device.runtime.agent.process import is_locked
from edgekit.device.runtime.agent.status import nothing_deployed
from edgekit.device.runtime.agent.store import Store, committed, write_synced
from edgekit.device.runtime.errors import DeviceError, InputError, RolledBackError
from edgekit.device.runtime.record import asdict

_MOST_FAILURES = 3  # consecutive failures
_POLL_SECONDS = 0.02
_READY_SECONDS = 1.0
_STOP_SECONDS = 15.0


def _start_detached(command: List[str]) -> None:
    """Starts a process that outlives the caller, in its own session."""
    if os.fork() == 0:
        try:
            nothing = subprocess.DEVNULL
            subprocess.Popen(
                command,
                cwd="/",
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                start_new_session=True,
            )
        finally:
            os._exit(0)
    os.wait()


def start(
    store: Store,
    seconds: float,
    runtime: Optional[Path] = None,
    detach: Callable[[List[str]], None] = _start_detached,
) -> Dict[str, Any]:
    """Starts the current release's application and waits until it reports ready and stays so.

    RolledBackError if it failed so often that the previous release was restored, DeviceError if it
    fails and there is none; a program that does not report within `seconds` is left running.
    `runtime` is the file of the supervisor's program (default: the running program); `detach`
    starts it on a board without an init system.
    """
    release = committed(store)
    if release is None:
        raise nothing_deployed(store)
    application = store.manifest(release).application
    if application is None:
        raise InputError(
            f"expected a release with an application, found {release} without one; install one: "
            "edgekit app install FOLDER"
        )
    folder = AppFolder(store)
    folder.create()
    folder.stopped.unlink(missing_ok=True)
    own = (runtime or Path(sys.argv[0])).read_bytes()
    boot = boot_entry(store)
    if not _runs_from(folder, own) or folder.state().state == ENDED:
        _end_supervisor(folder)
        _launch(store, own, detach)
    else:
        boot.arrange()
    state = _wait_until_settled(store, folder, release, seconds)
    if state.release != release:  # a slow board: the supervisor has not reported yet
        state = AppState(STARTING, application.name, release)
    return _app_document(store, state, boot)


def resume(
    store: Store,
    runtime: Optional[Path] = None,
    detach: Callable[[List[str]], None] = _start_detached,
) -> None:
    """Starts the supervisor if an application is in service and neither it nor a user's stop is
    there: the supervisor ends with the last application. Arguments as for `start`."""
    folder = AppFolder(store)
    if not folder.root.is_dir() or folder.stopped.exists() or folder.supervisor() is not None:
        return
    release = committed(store)
    try:
        there = release is not None and store.manifest(release).application is not None
    except DeviceError:  # damaged: the command that finds an intact one resumes
        return
    if there:
        _launch(store, (runtime or Path(sys.argv[0])).read_bytes(), detach)


def _launch(store: Store, runtime: bytes, detach: Callable[[List[str]], None]) -> None:
    """Starts a supervisor of this runtime, now and at boot."""
    folder, boot = AppFolder(store), boot_entry(store)
    folder.forget_state()
    write_synced(folder.runtime, runtime)
    boot.arrange()
    if not boot.start():
        detach(_supervisor_command(store, folder))


def stop(store: Store) -> Dict[str, Any]:
    """Stops the application, across reboots, until it is started again."""
    folder = AppFolder(store)
    if not folder.root.is_dir():
        raise _nothing_installed()
    folder.stopped.touch()
    boot = boot_entry(store)
    boot.forget()
    _end_supervisor(folder)
    return _app_document(store, folder.state(), boot)


def status(store: Store) -> Dict[str, Any]:
    """Returns the application's state."""
    folder = AppFolder(store)
    if not folder.root.is_dir():
        raise _nothing_installed()
    return _app_document(store, folder.state(), boot_entry(store))


def forget(store: Store) -> None:
    """Ends the supervisor of a model about to be removed, and its start at boot."""
    folder = AppFolder(store)
    if folder.root.is_dir():
        boot_entry(store).forget()
        _end_supervisor(folder)


def log(store: Store, lines: int) -> Dict[str, Any]:
    """Returns the last lines of the application's output, and its supervisor's report."""
    folder = AppFolder(store)
    if not folder.root.is_dir():
        raise _nothing_installed()
    return {"schema": "edgekit.runtime.app.log/1", "lines": folder.last_lines(lines)}


def _nothing_installed() -> InputError:
    """The error for a model whose application was never installed or started."""
    return InputError(
        "expected an application on this board, found none; install one: edgekit app install FOLDER"
    )


def _app_document(store: Store, state: AppState, boot: Boot) -> Dict[str, Any]:
    """Also tells why an application was rolled back, until another release succeeds."""
    who = boot.who()
    note = store.read_note(store.failure) or {}
    failed = note.get("state") == "application"
    failure = f"release {note.get('release')}: {note.get('reason')}" if failed else ""
    line = "" if who or state.state == STOPPED else boot.line
    return {
        "schema": "edgekit.runtime.app/1",
        **asdict(state),
        "failure": failure,
        "boot": who,
        "boot_line": line,
    }


def boot_entry(store: Store) -> Boot:
    """Returns what starts the store's supervisor at boot."""
    folder = AppFolder(store)
    return Boot(
        store.root.absolute(), _supervisor_command(store, folder), folder.lock, "app-supervise"
    )


def _supervisor_command(store: Store, folder: AppFolder) -> List[str]:
    root = ["--root", str(store.root.absolute())]
    return [sys.executable, "-I", "-S", str(folder.runtime), *root, "app-supervise"]


def _runs_from(folder: AppFolder, runtime: bytes) -> bool:
    """Whether a supervisor with exactly this runtime is running."""
    with contextlib.suppress(OSError):
        return folder.supervisor() is not None and folder.runtime.read_bytes() == runtime
    return False


def _end_supervisor(folder: AppFolder) -> None:
    supervisor = folder.supervisor()
    if supervisor is None:
        return
    supervisor.terminate()
    end = time.monotonic() + _STOP_SECONDS
    while supervisor.lives():
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor.pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _wait_until_settled(store: Store, folder: AppFolder, release: str, seconds: float) -> AppState:
    """Returns the application's state once it has been ready for a moment, has failed for good, or
    time is up. Many programs fail just after they report ready, when they open their devices."""
    end = time.monotonic() + seconds
    ready, since = 0, 0.0
    while True:
        state = folder.state()
        if state.state != RUNNING:
            ready = 0
        elif state.pid != ready:
            ready, since = state.pid, time.monotonic()
        if committed(store) != release and not is_locked(store.lock_file):
            failure = store.read_note(store.failure) or {}
            raise RolledBackError(
                f"release {release} was rolled back "
                f"({failure.get('reason', 'no reason recorded')}); release {committed(store)} "
                "runs again",
                log="\n".join(folder.last_lines(10)),
            )
        if state.release == release:
            if state.state == ENDED or (ready and time.monotonic() > since + _READY_SECONDS):
                return state
            if state.failures >= _MOST_FAILURES:
                raise DeviceError(
                    f"{state.name} {state.last}; it keeps failing; see its log: edgekit app status",
                )
        if time.monotonic() > end:
            return state
        time.sleep(_POLL_SECONDS)

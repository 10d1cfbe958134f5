"""Files of a model's application, in app/ below the model's folder.

lock             held with flock by the supervisor
runtime.pyz      copy that the supervisor runs from, independent of releases
stopped          present while a user has stopped the application
state.json       the supervisor's last reported state; see AppState
proved           the release with which it has run long enough
run/<release>/   its files while it runs; deleted together with the second next release
data/            its working directory, writable
log, log.1       its output; log.1 is the older half
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import List, Optional

from edgekit.device.runtime.agent.manifest import RUNTIME, Manifest
from edgekit.device.runtime.agent.process import Process
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.store import Store, sha256_file
from edgekit.device.runtime.errors import TransferError
from edgekit.device.runtime.record import Record, asdict, replace

HALF_LOG_BYTES = 256 << 10

STARTING, RUNNING, WAITING = "starting", "running", "waiting"
ENDED, STOPPED, NOTHING = "ended", "stopped", "nothing"


class AppState(Record):
    """`state`: STARTING until it first reports ready, then RUNNING; WAITING for a restart; ENDED by
    itself; STOPPED by the user; NOTHING installed. `failures` counts consecutive failures, `last`
    describes how the last run ended, `denied` which scheduler, priority or cores it did not get."""

    state: str = NOTHING
    name: str = ""
    release: str = ""
    pid: int = 0
    said: str = ""
    failures: int = 0
    restarts: int = 0
    last: str = ""
    denied: str = ""


class AppFolder:
    """Paths and small files; only one supervisor writes them at a time."""

    def __init__(self, store: Store) -> None:
        self.root = store.root.absolute() / "app"
        self.lock = self.root / "lock"
        self.runtime = self.root / RUNTIME
        self.stopped = self.root / "stopped"
        self.data = self.root / "data"
        self._store = store
        self._run = self.root / "run"
        self._state = self.root / "state.json"
        self._proved = self.root / "proved"
        self._log, self._old_log = self.root / "log", self.root / "log.1"

    def create(self) -> None:
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)

    def supervisor(self) -> Optional[Process]:
        """The process that holds the lock, or None."""
        try:
            pid, started = self.lock.read_text().split()
            found = Process(int(pid), int(started))
        except (OSError, ValueError):
            return None
        return found if found.lives() else None

    def state(self) -> AppState:
        """Returns the last recorded state, corrected if the supervisor has been killed since."""
        try:
            found = AppState(**json.loads(self._state.read_text()))
        except (OSError, ValueError, TypeError):
            found = AppState()
        if self.supervisor() is not None:
            return found
        return replace(found, state=STOPPED if self.stopped.exists() else NOTHING, pid=0)

    def write_state(self, state: AppState) -> None:
        """Records the state; if the disk is full, the previous state remains."""
        temporary = self._state.with_name(".state.json")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(asdict(state)))
            temporary.replace(self._state)

    def forget_state(self) -> None:
        """Deletes the state of a supervisor that is gone."""
        self._state.unlink(missing_ok=True)

    def proved(self) -> str:
        """Returns the release with which the application has run long enough; empty if none."""
        try:
            return self._proved.read_text()
        except OSError:
            return ""

    def prove(self, release: str) -> None:
        with contextlib.suppress(OSError):  # a full disk; its supervisor retries
            self._proved.write_text(release)

    def copy(self, manifest: Manifest) -> Path:
        """Returns the folder to run from: copies of the application's files and the runtime they
        import. TransferError if one is damaged."""
        application = manifest.application
        assert application is not None
        target = self._run / manifest.id
        if target.is_dir():
            return target
        temporary = self._run / f".{manifest.id}"
        shutil.rmtree(temporary, ignore_errors=True)
        with ReleaseFiles(self._store.releases / manifest.id) as files:
            for path in (*application.files, RUNTIME):
                place = temporary / path
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with place.open("wb") as writer:
                    writer.writelines(files.chunks(path))
                if (found := sha256_file(place)) != (expected := manifest.file(path).sha256):
                    raise TransferError(
                        f"{path}: expected SHA-256 {expected[:16]}, found {found[:16]}; "
                        "deploy again"
                    )
        if not application.is_python:
            (temporary / application.entry).chmod(0o700)
        temporary.rename(target)
        return target

    def remove_copies(self, but: str) -> None:
        """Removes the copies of all releases but one, including partial ones."""
        for folder in self._run.glob("*"):
            if folder.name != but:
                shutil.rmtree(folder, ignore_errors=True)

    def forget_death(self, pid: int) -> None:
        """Removes the death note of a process that was ended on purpose; see
        application/watch.py."""
        for note in (self._store.root / "watch").glob(f"*.{pid}-*.json"):
            with contextlib.suppress(OSError):
                note.unlink()

    def write_log(self, data: bytes) -> None:
        """Appends to the log; output is lost if the disk is full."""
        with contextlib.suppress(OSError):
            with self._log.open("ab") as file:
                file.write(data[-HALF_LOG_BYTES:])
                size = file.tell()
            if size > HALF_LOG_BYTES:
                os.replace(self._log, self._old_log)  # noqa: PTH105

    def last_lines(self, count: int) -> List[str]:
        """Returns the last `count` lines of output."""
        text = b""
        for path in (self._old_log, self._log):
            with contextlib.suppress(OSError):
                text += path.read_bytes()
        return text.decode("utf-8", "replace").splitlines()[-count:]

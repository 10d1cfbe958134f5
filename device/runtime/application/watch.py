"""Detects whether applications survive a new release, from notes they leave while it is new.

Each process that loads a release which no process has run for WATCH_SECONDS yet leaves a note in
watch/, and deletes it on a normal exit. A note whose process is dead means that it was killed, by a
crash in the model or by a user; since these look the same afterwards, it takes DEATHS of them for a
rollback. An exception that ends the process is recognized directly. No clock is used: notes from
before the last boot are ignored.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import List, Optional

from edgekit.device.runtime.agent.process import Process
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.record import asdict

WATCH_SECONDS = 60.0
DEATHS = 2
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROVED = "proved"


class Watch:
    """The notes in one board's folder, from this process's point of view."""

    def __init__(self, store: Store) -> None:
        self._folder = store.root / "watch"
        self._store = store
        self._own: Optional[Path] = None

    def proved(self, release: str) -> bool:
        """Whether a process has run the release long enough, so that it is no longer watched."""
        return (self._folder / f"{release}.{_PROVED}").exists()

    def begin(self, release: str) -> None:
        """Leaves a note that this process runs `release`, unless the release is proved."""
        self.end()
        if self.proved(release):
            return
        process = Process.this()
        path = self._folder / f"{release}.{process.pid}-{process.started}-{id(self):x}.json"
        with contextlib.suppress(OSError):  # a full or read-only disk must not stop inferences
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._remove_stale_notes()
            _of_failures(path).unlink(missing_ok=True)
            path.write_text(json.dumps({"boot": _boot_id(), "process": asdict(process)}))
            self._own = path

    def end(self) -> None:
        """Deletes this process's note, on a normal exit or a change of release."""
        if self._own is not None:
            with contextlib.suppress(OSError):
                self._own.unlink()
            self._own = None

    def fail(self) -> None:
        """Keeps this process's note because the release could not be opened, in place of the notes
        of its earlier attempts: a program may try for days."""
        if self._own is not None:
            with contextlib.suppress(OSError):
                self._own.replace(_of_failures(self._own))
            self._own = None

    def prove(self, release: str) -> None:
        """Records that this process has run the release long enough."""
        self.end()
        with contextlib.suppress(OSError):
            (self._folder / f"{release}.{_PROVED}").touch()
            self.forget(release)

    def deaths(self, release: str) -> int:
        """Counts processes that died with the release since the last boot, before it was proved."""
        found = (_read_process(path) for path in self._list_notes(release))
        return len({process for process in found if process and not process.lives()})

    def forget(self, release: str) -> None:
        """Deletes the notes of processes that died with the release."""
        for path in self._list_notes(release):
            process = _read_process(path)
            if process is None or not process.lives():
                with contextlib.suppress(OSError):
                    path.unlink()

    def _list_notes(self, release: str) -> List[Path]:
        return sorted(self._folder.glob(f"{release}.*.json"))

    def _remove_stale_notes(self) -> None:
        """Deletes the notes of releases that no longer exist."""
        installed = set(self._store.installed())
        for path in self._folder.iterdir():
            if path.name.partition(".")[0] not in installed:
                path.unlink()


def _of_failures(note: Path) -> Path:
    """The note of all failures of its process to open its release."""
    return note.with_name(f"{note.stem.rpartition('-')[0]}-failed.json")


def _read_process(path: Path) -> Optional[Process]:
    """Returns a note's process; None if it is from before the last boot, or torn by a power cut."""
    try:
        note = json.loads(path.read_text())
        return Process(**note["process"]) if note["boot"] == _boot_id() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _boot_id() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""

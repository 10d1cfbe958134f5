"""Repairs a board's folder: interrupted switches, invalid links and notes, leftovers.

Runs with the next command that finds the lock free, and reports what it repaired.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Optional

from edgekit.device.runtime.agent.counters import keep_counters
from edgekit.device.runtime.agent.integrity import find_damage
from edgekit.device.runtime.agent.store import NAMED, Links, Store, read_manifest
from edgekit.device.runtime.errors import BusyError

_LINKS = ("current", "previous")


def recover_if_needed(store: Store) -> None:
    """Undoes an interrupted deploy and repairs anomalies, unless a change is in progress."""
    if store.root.is_dir() and _is_inconsistent(store):
        with contextlib.suppress(BusyError), store.lock():
            recover(store)


def recover(store: Store) -> None:
    """Removes leftovers, reverts an uncommitted switch to its noted links, and repairs links and
    notes. The caller holds the lock."""
    _remove_unfinished(store)
    _mend_notes(store)
    _go_back(store)
    _mend_links(store)


def remove_tombstones(store: Store, name: str = "") -> bool:
    """Removes the remains of deleted models; returns whether any belonged to `name`."""
    import shutil

    found = False
    for folder in (store.board / NAMED).glob(f".{name or '*'}.*"):
        shutil.rmtree(folder, ignore_errors=True)
        found = True
    return found


def switch(store: Store, links: Links) -> None:
    """Changes both links, atomically even across crashes. The caller holds the lock."""
    before = store.links()
    keep_counters(store)
    try:
        store.write_note(store.pending, _links_to_dict(before))
        store.set_links(links)
        store.remove_note(store.pending)
    except OSError:
        store.set_links(before)
        store.remove_note(store.pending)
        raise


def _links_to_dict(links: Links) -> Dict[str, Optional[str]]:
    return {"current": links.current, "previous": links.previous}


def _is_inconsistent(store: Store) -> bool:
    if os.path.lexists(store.pending) or any(store.link_oddity(name) for name in _LINKS):
        return True
    links = store.links()
    if links.current is not None and links.current == links.previous:
        return True
    return any(_note_oddity(path) for path in store.notes)


def _remove_unfinished(store: Store) -> None:
    """Deletes files whose writer was killed while writing."""
    import shutil  # loads compression libraries: deferred until there is something to delete

    remove_tombstones(store)
    for folder in store.releases.glob(".new-*"):
        shutil.rmtree(folder, ignore_errors=True)
    unfinished = [store.root / f".{name}" for name in (*_LINKS, *(p.name for p in store.notes))]
    for release in store.installed():
        unfinished += [p for p in (store.releases / release).rglob(".*") if not p.is_dir()]
    for path in unfinished:
        with contextlib.suppress(OSError):
            path.unlink()


def _mend_notes(store: Store) -> None:
    for path in store.notes:
        if found := _note_oddity(path):
            _discard(store, path)
            effect = "the running release stays" if path == store.pending else "it is rewritten"
            store.tell(f"{path.name}: expected a note of this board, found {found}; {effect}")


def _note_oddity(path: Path) -> str:
    """Describes why a note file is invalid; empty if it is valid or missing."""
    if not os.path.lexists(path):
        return ""
    if path.is_symlink() or not path.is_file():
        return _file_kind(path)
    try:
        note: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return f"{path.lstat().st_size} bytes that are not JSON"
    return "" if isinstance(note, dict) else "another document"


def _go_back(store: Store) -> None:
    """Undoes a switch that was not committed."""
    note = store.read_note(store.pending)
    if note is None:
        return
    installed = store.installed()
    noted = [note.get(name) for name in _LINKS]
    if noted[0] is not None and noted[0] not in installed:
        store.tell(
            f"{store.pending.name}: expected the release to roll back to, found it missing; the "
            "running release stays"
        )
    else:
        interrupted = store.links().current
        store.set_links(Links(*(name if name in installed else None for name in noted)))
        failure = {"release": interrupted, "state": "interrupted"}
        reason = "the deploy ended before its commit"
        store.write_note(store.failure, {**failure, "reason": reason, "log": ""})
    store.remove_note(store.pending)


def _mend_links(store: Store) -> None:
    """Replaces links that name no release by links to other intact releases, if there are any."""
    odd = {name: found for name in _LINKS if (found := store.link_oddity(name))}
    links = store.links()
    if not odd and (links.current is None or links.current != links.previous):
        return
    current = None if "current" in odd else links.current
    previous = None if "previous" in odd or links.previous == current else links.previous
    copy = _take_copy(store) if "current" in odd else None
    for name in odd:
        _discard(store, store.root / name)
    spare = [r for r in (copy, previous, *store.installed()) if r and r != current]
    whole = (r for r in dict.fromkeys(spare) if not find_damage(store.releases / r, full=True))
    if "current" in odd:
        current = next(whole, None)
    if previous in (None, current):
        previous = next(whole, None)
    store.set_links(Links(current, previous))
    for name, found in odd.items():
        release = current if name == "current" else previous
        effect = f"it now points to {release}" if release else "no intact release is left"
        store.tell(f"{name}: expected a link to a release, found {found}; {effect}")


def _take_copy(store: Store) -> Optional[str]:
    """If `current` is a folder instead of a link, moves it to releases/ and returns its release."""
    folder = store.root / "current"
    if folder.is_symlink() or not folder.is_dir():
        return None
    with contextlib.suppress(Exception):
        release = read_manifest(folder).id
        if not (store.releases / release).exists():
            folder.rename(store.releases / release)
        return release
    return None


def _discard(store: Store, path: Path) -> None:
    """Moves a folder to temporary/, which the deploy after the next deletes; unlinks a file."""
    if path.is_dir() and not path.is_symlink():
        area = store.root / "temporary"
        area.mkdir(mode=0o700, exist_ok=True)
        path.rename(area / f"{path.name}-{os.urandom(4).hex()}")
    else:
        path.unlink(missing_ok=True)


def _file_kind(path: Path) -> str:
    if path.is_symlink():
        return "a link"
    return "a folder" if path.is_dir() else "a special file"

"""Removes a model from a board: its releases, links and notes, without touching other models.

A named model is a folder, which disappears by one rename. The default model shares its folder with
the board's own files, so its links are removed like in any switch. If the command is killed, the
same command or the next one that changes a release removes the remains.
"""

from __future__ import annotations

import contextlib
import os
from typing import Tuple

from edgekit.device.runtime.agent.process import users_of
from edgekit.device.runtime.agent.recovery import recover, remove_tombstones, switch
from edgekit.device.runtime.agent.release import prune
from edgekit.device.runtime.agent.service import forget
from edgekit.device.runtime.agent.session import alone
from edgekit.device.runtime.agent.store import Links, Store, sync_folder
from edgekit.device.runtime.errors import BusyError, InputError


def remove(store: Store) -> Tuple[str, ...]:
    """Removes the model; returns its current and previous release, or none if only remains were
    left.

    InputError if there is no such model, BusyError if a process is using it or a deploy is in
    progress.
    """
    if not _is_there(store):
        if store.name and remove_tombstones(store, store.name):
            return ()
        raise _not_deployed_error(store)
    with alone(store), store.lock():
        recover(store)
        _refuse_users(store)
        forget(store)
        links = store.links()
        releases = tuple(r for r in (links.current, links.previous) if r)
        if store.name:
            store.root.rename(store.root.with_name(f".{store.name}.{os.urandom(4).hex()}"))
            sync_folder(store.root.parent)
        else:
            switch(store, Links(None, None))
            with contextlib.suppress(OSError):  # the model is gone; the rest can be deleted later
                prune(store, releases[0] if releases else "none")
                for note in (store.failure, store.counters):
                    store.remove_note(note)
    remove_tombstones(store)
    return releases


def _is_there(store: Store) -> bool:
    """Whether any part of the model exists: a failed first deploy leaves a partial one."""
    if store.name:
        return store.root.is_dir()
    parts = (store.root / name for name in ("current", "previous"))
    notes = (store.failure, store.counters)
    return bool(store.installed()) or any(map(os.path.lexists, (*parts, *notes)))


def _refuse_users(store: Store) -> None:
    users = users_of(store.releases)
    if users:
        who = ", ".join(f"{pid} ({name})" for pid, name in users[:3])
        raise BusyError(
            f"expected the model not to be in use, found process {who}; stop it, then try again"
        )


def _not_deployed_error(store: Store) -> InputError:
    if not store.name:
        return InputError("expected a deployed model, found none; there is nothing to remove")
    there = ", ".join(store.names()) or "nothing"
    return InputError(f"expected a model deployed as '{store.name}', found none; deployed: {there}")

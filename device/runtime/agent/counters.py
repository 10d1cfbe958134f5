"""The highest counter of each model ever deployed here: a lower one needs explicit consent.

Linked releases carry their own counters. A note keeps the counters of deleted releases, and of
releases left by a rollback or an allowed downgrade.
"""

from __future__ import annotations

from typing import Dict

from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import DeviceError


def highest_counter(store: Store, model: str) -> int:
    """Returns the model's highest counter; 0 if it was never deployed here."""
    return _highest_counters(store).get(model, 0)


def keep_counters(store: Store) -> None:
    """Saves the linked releases' counters before a switch may lose them. The lock is held."""
    known = _highest_counters(store)
    if known != _recorded_counters(store):
        store.write_note(store.counters, known)


def _highest_counters(store: Store) -> Dict[str, int]:
    links, known = store.links(), _recorded_counters(store)
    for release in filter(None, (links.current, links.previous)):
        try:
            manifest = store.manifest(release)
        except DeviceError:
            continue  # damaged: no counter to compare with, and a deploy is the fix
        if manifest.counter > known.get(manifest.model.name, 0):
            known[manifest.model.name] = manifest.counter
    return known


def _recorded_counters(store: Store) -> Dict[str, int]:
    note = store.read_note(store.counters) or {}
    return {name: value for name, value in note.items() if type(value) is int}

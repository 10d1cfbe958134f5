"""The highest counter of each model that ever was in service here: a lower one needs consent.

The releases that the links name tell their own counters; those of releases that are gone are kept
in a note, and so is what a roll back or an allowed downgrade went back from.
"""

from __future__ import annotations

from typing import Dict

from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import DeviceError


def highest_counter(store: Store, model: str) -> int:
    """0 if the model was never here, or only with that."""
    return _known(store).get(model, 0)


def keep_counters(store: Store) -> None:
    """Notes what the links' releases say, before a switch may lose them. The lock is held."""
    known = _known(store)
    if known != _noted(store):
        store.write_note(store.counters, known)


def _known(store: Store) -> Dict[str, int]:
    links, known = store.links(), _noted(store)
    for release in filter(None, (links.current, links.previous)):
        try:
            manifest = store.manifest(release)
        except DeviceError:
            continue  # damaged: nothing to compare with, and a deploy is what mends it
        if manifest.counter > known.get(manifest.model.name, 0):
            known[manifest.model.name] = manifest.counter
    return known


def _noted(store: Store) -> Dict[str, int]:
    note = store.read_note(store.counters) or {}
    return {name: value for name, value in note.items() if type(value) is int}

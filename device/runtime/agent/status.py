"""What is in service on a board, and whether it still is what was installed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from edgekit.device.runtime.agent.integrity import find_damage, find_damage_of_head, record_damage
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.process import is_locked
from edgekit.device.runtime.agent.recovery import recover, recover_if_needed, switch
from edgekit.device.runtime.agent.session import alone
from edgekit.device.runtime.agent.specs import LossSpec, PlacementSpec
from edgekit.device.runtime.agent.store import Links, Store
from edgekit.device.runtime.errors import (
    BusyError,
    DeviceError,
    InputError,
    RolledBackError,
    TransferError,
)


@dataclass(frozen=True)
class ReleaseInfo:
    id: str
    model: str
    model_sha256: str
    profile: str
    kit_version: str
    counter: int
    bytes: int
    shapes: Tuple[Dict[str, Tuple[int, ...]], ...]  # of the inputs, for each variant
    damage: str = ""  # what is not as it was installed, as far as was looked
    placement: Optional[PlacementSpec] = None  # where it runs unless told; None: on one thread
    loss: Optional[LossSpec] = None  # beside f32


@dataclass(frozen=True)
class Status:
    current: Optional[ReleaseInfo]
    previous: Optional[ReleaseInfo]
    interrupted: bool
    deploying: bool
    last_failure: Optional[Dict[str, Any]]
    named: Dict[str, Status] = field(default_factory=dict)  # of the models beside the default one


def status(store: Store, full: bool = True, mend: bool = True) -> Status:
    """What runs, what ran before, and why the last roll back happened.

    `full` compares both with their SHA-256, unless a deploy is changing them just now; with
    `mend`, a damaged current release is left for the previous one.
    """
    recover_if_needed(store)
    full = full and not is_locked(store.lock_file)
    links = store.links()
    current = _info(store, links.current, full)
    if current and current.damage and mend:
        store.tell(str(leave_damaged(store, current.id, current.damage)))
        if store.links() != links:
            return status(store, full, mend=False)
    return Status(
        current,
        _info(store, links.previous, full),
        store.pending.exists(),
        is_locked(store.lock_file),
        store.read_note(store.failure),
        {} if store.name else {n: status(store.named(n), full, mend) for n in store.names()},
    )


def current_release(store: Store) -> Tuple[Manifest, Path]:
    """The manifest and folder of what runs, every byte of it checked.

    InputError if nothing was deployed. A damaged release is never run: the previous one comes back
    if that is whole (RolledBackError), else TransferError says what is damaged.
    """
    recover_if_needed(store)
    release = store.links().current
    if release is None:
        raise nothing_deployed(store)
    folder = store.releases / release
    record = record_damage(folder)
    if damage := find_damage(folder):
        raise leave_damaged(store, release, damage)
    if record:
        store.tell(f"release {release}: {record}")
    return store.manifest(release), folder


def application_in_service(store: Store) -> str:
    """The name of the application of what is deployed; empty if that has none."""
    release = store.links().current
    try:
        found = store.manifest(release).application if release else None
    except DeviceError:  # damaged: whoever wants to keep the application installs it again
        return ""
    return found.name if found else ""


def leave_damaged(store: Store, release: str, damage: str) -> DeviceError:
    """Goes back from a damaged release to the one before; the error that says how that ended."""
    try:
        back = leave(store, release, "load", f"damaged: {damage}")
    except BusyError:
        back = None
    if back is None:
        return damaged(release, damage)
    return RolledBackError(f"release {release} is damaged ({damage}); release {back} runs again")


def leave(store: Store, release: str, state: str, reason: str) -> Optional[str]:
    """Goes back from `release` to the one before, noting why; which one runs again.

    None if there is nothing whole to go back to, or `release` is not what runs (any more).
    BusyError while a deploy is on its way.
    """
    with alone(store), store.lock():
        recover(store)
        links = store.links()
        if links.current != release or links.previous is None:
            return None
        if find_damage(store.releases / links.previous, full=True):
            return None
        failure = {"release": release, "state": state, "reason": reason, "log": ""}
        # Before the switch: `status` reads without the lock, the links first. Nor may a full disk
        # keep the release in service.
        with contextlib.suppress(OSError):
            store.write_note(store.failure, failure)
        switch(store, Links(links.previous, release))
        return links.previous


def verify(store: Store) -> Status:
    """The status, if what the links name is whole; else the error says what is not.

    A damaged current release is left for the previous one.
    """
    found = status(store, mend=False)
    if not (found.current or found.named):
        raise nothing_deployed(store)
    _refuse_damage(store, found)
    for name, beside in found.named.items():
        _refuse_damage(store.named(name), beside)
    return found


def _refuse_damage(store: Store, found: Status) -> None:
    if found.current and found.current.damage:
        raise leave_damaged(store, found.current.id, found.current.damage)
    if found.previous and found.previous.damage:
        raise damaged(found.previous.id, found.previous.damage)


def nothing_deployed(store: Store) -> InputError:
    """The error of whoever wants to run what is not there."""
    if not store.name:
        return InputError("expected a deployed model, found none; deploy one first: edgekit deploy")
    there = ", ".join(store.names()) or "nothing"
    return InputError(
        f"expected a model deployed as '{store.name}', found none; there is: {there} "
        f"(deploy it: edgekit deploy MODEL --name {store.name})"
    )


def damaged(release: str, damage: str) -> TransferError:
    return TransferError(f"release {release} is damaged: {damage}; deploy it again")


def _info(store: Store, release: Optional[str], full: bool) -> Optional[ReleaseInfo]:
    if release is None:
        return None
    folder = store.releases / release
    damage = find_damage(folder, full=True) if full else find_damage_of_head(folder)
    try:
        m = store.manifest(release)
    except DeviceError:
        return ReleaseInfo(release, "", "", "", "", 0, 0, (), damage or "its manifest is gone")
    return ReleaseInfo(
        m.id,
        m.model.name,
        m.model.sha256,
        m.board.profile,
        m.kit_version,
        m.counter,
        sum(f.bytes for f in m.files),
        tuple(v.shapes for v in m.every_variant()),
        damage,
        m.placements[0] if m.placements else None,
        m.loss,
    )

"""Reports the releases on a board, and whether they are unchanged since installation."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Optional, Tuple

from edgekit.device.runtime.agent.integrity import (
    damage_of,
    find_damage,
    find_damage_of_head,
    record_damage,
)
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.process import is_locked
from edgekit.device.runtime.agent.recovery import recover, recover_if_needed, switch
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.session import alone
from edgekit.device.runtime.agent.specs import LossSpec, PlacementSpec
from edgekit.device.runtime.agent.store import Links, Store, manifest_of
from edgekit.device.runtime.errors import (
    BusyError,
    DeviceError,
    InputError,
    RolledBackError,
    TransferError,
)
from edgekit.device.runtime.record import Record


class ReleaseInfo(Record):
    id: str
    model: str
    model_sha256: str
    profile: str
    kit_version: str
    counter: int
    bytes: int
    shapes: Tuple[Dict[str, Tuple[int, ...]], ...]  # of the inputs, for each variant
    damage: str = ""  # the first difference from the installed state, as far as checked
    placement: Optional[PlacementSpec] = None  # the default placement; None: one thread
    loss: Optional[LossSpec] = None  # relative to f32
    signatures: Tuple[str, ...] = ()  # of each variant; empty if the model has only one


class Status(Record):
    current: Optional[ReleaseInfo]
    previous: Optional[ReleaseInfo]
    interrupted: bool
    deploying: bool
    last_failure: Optional[Dict[str, Any]]
    named: Dict[str, Status]  # models other than the default one


def status(store: Store, full: bool = True, repair: bool = True) -> Status:
    """Returns the running and the previous release, and the reason for the last rollback.

    `full` checks both against their SHA-256, unless a deploy is changing them; with `repair`, a
    damaged current release is rolled back.
    """
    recover_if_needed(store)
    full = full and not is_locked(store.lock_file)
    links = store.links()
    current = _release_info(store, links.current, full)
    if current and current.damage and repair:
        store.tell(str(leave_damaged(store, current.id, current.damage)))
        if store.links() != links:
            return status(store, full, repair=False)
    return Status(
        current,
        _release_info(store, links.previous, full),
        store.pending.exists(),
        is_locked(store.lock_file),
        store.read_note(store.failure),
        {} if store.name else {n: status(store.named(n), full, repair) for n in store.names()},
    )


def current_release(store: Store) -> Tuple[Manifest, ReleaseFiles]:
    """Returns the current release's manifest and its open files, after verifying every byte.

    InputError if nothing is deployed. A damaged release is never run: the board rolls back to the
    previous one if that is intact (RolledBackError); else TransferError describes the damage.
    """
    recover_if_needed(store)
    release = store.links().current
    if release is None:
        raise nothing_deployed(store)
    folder = store.releases / release
    record = record_damage(folder)
    files = ReleaseFiles(folder)
    if damage := damage_of(files):
        files.close()
        raise leave_damaged(store, release, damage)
    if record:
        store.tell(f"release {release}: {record}")
    return manifest_of(files), files


def application_in_service(store: Store) -> str:
    """Returns the name of the current release's application; empty if it has none."""
    release = store.links().current
    try:
        found = store.manifest(release).application if release else None
    except DeviceError:  # damaged: to keep the application, the user must install it again
        return ""
    return found.name if found else ""


def leave_damaged(store: Store, release: str, damage: str) -> DeviceError:
    """Rolls back a damaged release; returns the error that describes the outcome."""
    try:
        back = leave(store, release, "load", f"damaged: {damage}")
    except BusyError:
        back = None
    if back is None:
        return damaged(release, damage)
    return RolledBackError(f"release {release} is damaged ({damage}); release {back} runs again")


def leave(store: Store, release: str, state: str, reason: str) -> Optional[str]:
    """Rolls back from `release`, recording the reason; returns the id of the restored release.

    Returns None if there is no intact previous release, or `release` is not the current one (any
    more). BusyError if a deploy is in progress.
    """
    with alone(store), store.lock():
        recover(store)
        links = store.links()
        if links.current != release or links.previous is None:
            return None
        if find_damage(store.releases / links.previous, full=True):
            return None
        failure = {"release": release, "state": state, "reason": reason, "log": ""}
        # Before the switch, because `status` reads without the lock, links first. A full disk must
        # not keep the damaged release active.
        with contextlib.suppress(OSError):
            store.write_note(store.failure, failure)
        switch(store, Links(links.previous, release))
        return links.previous


def verify(store: Store) -> Status:
    """Returns the status if the linked releases are intact; otherwise raises an error with the
    damage.

    Rolls back a damaged current release.
    """
    found = status(store, repair=False)
    if not (found.current or found.named):
        raise nothing_deployed(store)
    _refuse_damage(store, found)
    for name, other in found.named.items():
        _refuse_damage(store.named(name), other)
    return found


def _refuse_damage(store: Store, found: Status) -> None:
    if found.current and found.current.damage:
        raise leave_damaged(store, found.current.id, found.current.damage)
    if found.previous and found.previous.damage:
        raise damaged(found.previous.id, found.previous.damage)


def nothing_deployed(store: Store) -> InputError:
    """The error for running a model that is not deployed."""
    if not store.name:
        return InputError("expected a deployed model, found none; deploy one first: edgekit deploy")
    there = ", ".join(store.names()) or "nothing"
    return InputError(
        f"expected a model deployed as '{store.name}', found none; deployed: {there} (deploy it: "
        f"edgekit deploy MODEL --name {store.name})"
    )


def damaged(release: str, damage: str) -> TransferError:
    return TransferError(f"release {release} is damaged: {damage}; deploy it again")


def _release_info(store: Store, release: Optional[str], full: bool) -> Optional[ReleaseInfo]:
    if release is None:
        return None
    folder = store.releases / release
    damage = find_damage(folder, full=True) if full else find_damage_of_head(folder)
    try:
        m = store.manifest(release)
    except DeviceError:
        return ReleaseInfo(release, "", "", "", "", 0, 0, (), damage or "its manifest is missing")
    variants = () if m.kernels else m.every_variant()
    return ReleaseInfo(
        m.id,
        m.model.name,
        m.model.sha256,
        m.board.profile,
        m.kit_version,
        m.counter,
        sum(f.bytes for f in m.files),
        tuple(v.shapes for v in variants),
        damage,
        m.placements[0] if m.placements else None,
        m.loss,
        tuple(v.signature for v in variants if v.signature),
    )

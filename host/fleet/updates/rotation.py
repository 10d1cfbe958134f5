"""Replaces keys of a folder of releases, and the server's certificate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgekit.device.runtime.agent.trusted import ROOT, TARGETS
from edgekit.host.common.files import private_folder
from edgekit.host.common.paths import data_folder
from edgekit.host.deploy.bundle import SigningKey, signing_key
from edgekit.host.errors import InputError
from edgekit.host.fleet.updates.folder import ReleaseFolder
from edgekit.host.fleet.updates.metadata import OwnerKeys

_PLACES = {ROOT: "root-key", TARGETS: "keys"}  # of this user's keys, in the data folder


def replace_key(folder: ReleaseFolder, what: str, certificate: str = "") -> None:
    """Replaces "root" or "targets", keys of this user's, or "server", in the metadata of `folder`.
    With "certificate", announces that of the server.

    A key that the folder has no more, since it was replaced for another folder, is taken as it is.
    InputError if this user has not the root key.
    """
    if what in _PLACES and folder.signed_by([_own(what)], what):
        _retire(what)
    owner = OwnerKeys.of_host()
    before = OwnerKeys(
        folder.signed_by([*owner.root, *_retired(ROOT)], ROOT),
        folder.signed_by([*owner.targets, *_retired(TARGETS)], TARGETS),
    )
    if not before.root or not before.targets:
        raise InputError(
            f"{folder.path}: expected the root key and the signing key of the host that made this "
            "folder, found others; replace keys there"
        )
    folder.rotate(owner, before, what == "server", certificate)


def _own(role: str) -> SigningKey:
    return signing_key(data_folder() / _PLACES[role])


def _retire(role: str) -> None:
    """Keeps this user's key with the earlier ones, which sign the change in other folders."""
    place, kept = data_folder() / _PLACES[role], _kept(role)
    private_folder(kept)
    place.rename(kept / str(len(list(kept.iterdir()))))


def _retired(role: str) -> Sequence[SigningKey]:
    kept = _kept(role)
    return [signing_key(path) for path in sorted(kept.iterdir())] if kept.exists() else []


def _kept(role: str) -> Path:
    return data_folder() / f"{_PLACES[role]}-before"

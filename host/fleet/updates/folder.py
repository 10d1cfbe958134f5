"""A folder of releases that boards fetch, as `fleet serve --releases` offers it.

metadata/N.root.json, N.targets.json    signed by the owner's keys, which need not be on the server
metadata/N.snapshot.json, timestamp.json  signed by the key in online/, renewed by the server
online/                                 that key
deltas/<target>.<base>                  between them; see deltas.py
files/<sha256>                          manifests, signatures and files of all offered releases, and
                                        for a while of earlier ones; see sweep.py
reports/<board>.json                    the last report of each model of a board
lock                                    held while metadata changes
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.device.runtime.agent.signing import NAMESPACE as BUNDLE_NAMESPACE
from edgekit.device.runtime.agent.trusted import ROOT, SNAPSHOT, TARGETS, TIMESTAMP
from edgekit.host.common.files import atomic_write, locked, private_folder, read_file
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_data, signing_key
from edgekit.host.errors import InputError
from edgekit.host.fleet.updates.deltas import bases_of, make_deltas
from edgekit.host.fleet.updates.metadata import (
    DAYS,
    Offered,
    OwnerKeys,
    is_signed,
    new_signed,
    public_lines,
    read_signed,
    root_content,
    sign,
    signed_seconds,
)
from edgekit.host.fleet.updates.report import BoardReport, decode_report, decode_reports
from edgekit.host.fleet.updates.sweep import sweep

_RENEW = 0.25  # of the time until metadata expires
_VERSIONED = re.compile(r"([0-9]{1,9})\.(root|targets|snapshot)\.json")
_HEX = re.compile("[0-9a-f]{64}")
_DELTA = re.compile(r"[0-9a-f]{40}\.[0-9a-f]{40}")


class ReleaseFolder:
    """The folder at `path`; `now` returns seconds since 1970."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path, self._now = path, now
        self._metadata = path / "metadata"
        self._files = path / "files"

    @property
    def exists(self) -> bool:
        return self._newest(ROOT) > 0

    def create(self, owner: OwnerKeys) -> None:
        """Makes an empty folder whose metadata `owner` signs, unless it exists."""
        with self._changing():
            if not self.exists:
                self._write_root(owner, ())
                self._write_targets(owner, {})

    def root(self) -> bytes:
        """The newest root metadata, with which a board is enrolled. InputError without any."""
        version = self._newest(ROOT)
        if not version:
            raise InputError(
                f"{self.path}: expected a folder of releases, found none; make one: edgekit "
                "fleet enroll BOARD --server HOST --releases FOLDER"
            )
        return read_file(self._metadata / f"{version}.root.json")

    def rotate(
        self, owner: OwnerKeys, before: OwnerKeys, new_online: bool = False, certificate: str = ""
    ) -> None:
        """Writes the next root metadata with the keys of `owner`, signed also by those of `before`;
        with `new_online`, also replaces the server's key. A `certificate` of the server is
        announced to boards. Targets, and the manifests that they name, are signed again."""
        with self._changing():
            targets = self._targets(before)
            if new_online:
                shutil.rmtree(self.path / "online", ignore_errors=True)
            self._write_root(owner, before.root, new_online, certificate)
            for target in targets.values():
                if target["custom"]["signature"]:
                    manifest = self._read_file(target["hashes"]["sha256"])
                    signature = sign_data(manifest, owner.targets[0], BUNDLE_NAMESPACE)
                    target["custom"]["signature"] = self._store(signature)
            self._write_targets(owner, targets)
            self._renew(always=True)

    def signed_by(self, keys: Sequence[SigningKey], role: str) -> tuple[SigningKey, ...]:
        """Those of the keys that the newest root metadata names for a role."""
        known = public_lines(self._signed(ROOT), role)
        return tuple(key for key in keys if key.public.line in known)

    def offer(self, owner: OwnerKeys, bundles: Sequence[Bundle], offers: Sequence[Offered]) -> None:
        """Offers releases, whose bundles are given unless they are here already. A board's earlier
        offer of the same model ends, and deltas are made from that release."""
        self._make_deltas(owner, bundles, offers)
        with self._changing():
            self._check_owner(owner)
            if _is_aged(self._signed(ROOT), self._now()):
                self._write_root(owner, ())
            targets = self._targets(owner)
            for bundle in bundles:
                made, path = self._add(bundle), _path(bundle.manifest.id)
                if path in targets:  # perhaps signed by another key since
                    made["custom"]["offers"] = targets[path]["custom"]["offers"]
                targets[path] = made
            for offer in offers:
                boards = set(offer.boards)
                for target in targets.values():
                    _withdraw(target["custom"]["offers"], {offer.name}, boards)
                targets[_path(offer.release)]["custom"]["offers"].append(
                    {
                        "name": offer.name,
                        "rollout": offer.rollout,
                        "boards": sorted(boards),
                        "back": offer.back,
                    }
                )
            self._write_targets(owner, targets)

    def _make_deltas(
        self, owner: OwnerKeys, bundles: Sequence[Bundle], offers: Sequence[Offered]
    ) -> None:
        """Makes deltas to new releases; meanwhile the server goes on."""
        with self._changing():
            self._check_owner(owner)
            targets = self._targets(owner)
            sweep(self.path, self._now())
            for bundle in bundles:
                self._add(bundle)
            bases = {
                bundle.manifest.id: [
                    parse_manifest(self._read_file(sha256))
                    for sha256 in bases_of(targets, bundle.manifest.id, offers)
                ]
                for bundle in bundles
            }
        with self._writing():
            for bundle in bundles:
                for base in bases[bundle.manifest.id]:
                    make_deltas(self._files, self.path / "deltas", bundle.manifest, base)

    def withdraw(self, owner: OwnerKeys, rollout: str, boards: Sequence[str]) -> None:
        """Ends a rollout's offers to boards, which keep what they run."""
        with self._changing():
            targets = self._targets(owner)
            for target in targets.values():
                own = [one for one in target["custom"]["offers"] if one["rollout"] == rollout]
                _withdraw(own, {one["name"] for one in own}, set(boards))
                target["custom"]["offers"] = [
                    one for one in target["custom"]["offers"] if one["boards"]
                ]
            self._write_targets(owner, targets)

    def renew(self) -> None:
        """Signs snapshot and timestamp again if targets changed or they have aged. InputError if
        the online key is missing."""
        try:
            with self._changing():
                self._renew()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(self._metadata, error) from None

    def read(self, name: str) -> bytes | None:
        """A metadata file by the name that boards ask for; None if there is none."""
        if name == "timestamp.json":
            self.renew()
        elif not _VERSIONED.fullmatch(name):
            return None
        try:
            return read_file(self._metadata / name)
        except FileNotFoundError:
            return None

    def file(self, sha256: str) -> Path | None:
        """The path of a release's file; None if there is none."""
        path = self._files / sha256
        return path if _HEX.fullmatch(sha256) and path.is_file() else None

    def delta(self, name: str) -> Path | None:
        """The path of a delta; None if there is none."""
        path = self.path / "deltas" / name
        found = _DELTA.fullmatch(name) and path.is_file() and path.stat().st_size
        return path if found else None

    def take(self, board: str, report: bytes) -> BoardReport:
        """Keeps a board's report; InputError if it is none."""
        found = decode_report(report)
        path = self._report_path(board)
        private_folder(path.parent)
        known = {**self.reports(board), found.name: found}
        newest = dict(list(known.items())[-32:])
        atomic_write(path, msgspec.json.encode(newest))
        return found

    def reports(self, board: str) -> dict[str, BoardReport]:
        """The last reports of a board, by model."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return decode_reports(read_file(self._report_path(board)))
        return {}

    def all_reports(self) -> dict[str, dict[str, BoardReport]]:
        """The last reports of all boards."""
        found = sorted((self.path / "reports").glob("[!.]*.json"))
        return {path.name.removesuffix(".json"): self.reports(path.stem) for path in found}

    def _report_path(self, board: str) -> Path:
        return self.path / "reports" / f"{board}.json"

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._writing():
            private_folder(self.path)
            for folder in (self._metadata, self._files):
                folder.mkdir(mode=0o700, exist_ok=True)
            with locked(self.path / "lock"):
                yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"{error.filename or self.path}: expected to write releases there, found: "
                f"{error.strerror}; free some space or choose another folder"
            ) from None

    def _newest(self, role: str) -> int:
        found = (_VERSIONED.fullmatch(path.name) for path in self._metadata.glob(f"*.{role}.json"))
        return max((int(one[1]) for one in found if one), default=0)

    def _signed(self, role: str) -> dict[str, Any]:
        """The newest metadata of a role; {} if there is none."""
        version = self._newest(role)
        name = f"{role}.json" if role == TIMESTAMP else f"{version}.{role}.json"
        try:
            return read_signed(self._metadata / name)
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(self._metadata / name, error) from None

    def _targets(self, owner: OwnerKeys) -> dict[str, Any]:
        """The newest targets, to be signed again. InputError if `owner` has not signed them: they
        may have changed on a stolen server."""
        path = self._metadata / f"{self._newest(TARGETS)}.targets.json"
        signed = self._signed(TARGETS)
        if signed and not is_signed(path, [key.public.line for key in owner.targets]):
            raise InputError(
                f"{path}: expected targets that this host has signed, found others; restore the "
                "folder from a backup"
            )
        return dict(signed.get("targets", {}))

    def _read_file(self, sha256: str) -> bytes:
        path = self._files / sha256
        try:
            data = read_file(path)
        except FileNotFoundError:
            data = b""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise _damaged(path, ValueError("other bytes"))
        return data

    def _check_owner(self, owner: OwnerKeys) -> None:
        known = public_lines(self._signed(ROOT), TARGETS)
        if not all(key.public.line in known for key in owner.targets):
            raise InputError(
                f"{self.path}: expected releases to be offered with the key of the host that made "
                f"this folder, found {owner.targets[0].public.fingerprint}; use that host, or "
                "another folder"
            )

    def _online(self) -> SigningKey:
        return signing_key(self.path / "online")

    def _write_root(
        self,
        owner: OwnerKeys,
        before: Sequence[SigningKey],
        new_online: bool = False,
        certificate: str = "",
    ) -> None:
        """Writes the next version; the server's key, which need not be here, stays the same unless
        a new one is made, and so does the announced certificate."""
        root, version = self._signed(ROOT), self._newest(ROOT) + 1
        keep = root and not new_online
        online = public_lines(root, TIMESTAMP)[0] if keep else self._online().public.line
        content = root_content(owner, online, certificate or root.get("certificate", ""))
        signed = new_signed(ROOT, version, self._now(), **content)
        keys = {key.public.line: key for key in (*owner.root, *before)}
        atomic_write(self._metadata / f"{version}.root.json", sign(signed, list(keys.values())))

    def _write_targets(self, owner: OwnerKeys, targets: Mapping[str, Any]) -> None:
        """Writes the next version, without releases that nobody is offered."""
        kept = {path: one for path, one in targets.items() if one["custom"]["offers"]}
        version = self._newest(TARGETS) + 1
        signed = new_signed(TARGETS, version, self._now(), targets=kept)
        atomic_write(self._metadata / f"{version}.targets.json", sign(signed, owner.targets))

    def _renew(self, always: bool = False) -> None:
        targets, snapshot = self._newest(TARGETS), self._signed(SNAPSHOT)
        if not targets:
            raise _damaged(self._metadata, ValueError("no targets"))
        if always or _is_old(snapshot, "targets.json", targets, self._now()):
            sweep(self.path, self._now())
            version = self._newest(SNAPSHOT) + 1
            meta = {"targets.json": self._pointer(TARGETS, targets)}
            signed = new_signed(SNAPSHOT, version, self._now(), meta=meta)
            self._write_online(f"{version}.snapshot.json", signed)
        timestamp, newest = self._signed(TIMESTAMP), self._newest(SNAPSHOT)
        if always or _is_old(timestamp, "snapshot.json", newest, self._now()):
            meta = {"snapshot.json": self._pointer(SNAPSHOT, newest)}
            version = timestamp.get("version", 0) + 1
            self._write_online(
                "timestamp.json", new_signed(TIMESTAMP, version, self._now(), meta=meta)
            )

    def _write_online(self, name: str, signed: Mapping[str, Any]) -> None:
        if not (self.path / "online").exists():
            raise InputError(
                f"{self.path / 'online'}: expected the server's key, found none; copy it from "
                "where the folder was made, or make another there: edgekit fleet serve "
                f"--releases {self.path} --new-key server"
            )
        atomic_write(self._metadata / name, sign(signed, [self._online()]))

    def _pointer(self, role: str, version: int) -> dict[str, Any]:
        data = read_file(self._metadata / f"{version}.{role}.json")
        digest = hashlib.sha256(data).hexdigest()
        return {"version": version, "length": len(data), "hashes": {"sha256": digest}}

    def _add(self, bundle: Bundle) -> dict[str, Any]:
        """Stores a bundle's files; returns its target, which is the manifest."""
        for data in bundle.files.values():
            self._store(bytes(data))
        manifest = self._store(bundle.manifest.to_json())
        signature = self._store(bundle.signature) if bundle.signature else None
        return {
            "length": manifest["length"],
            "hashes": {"sha256": manifest["sha256"]},
            "custom": {"signature": signature, "offers": []},
        }

    def _store(self, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        path = self._files / digest
        if not path.exists() or path.stat().st_size != len(data):
            atomic_write(path, data)
        os.utime(path, (self._now(), self._now()))  # sweep() keeps it until it is offered
        return {"sha256": digest, "length": len(data)}


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path}: expected metadata, found: {error!r}; restore the folder from a backup"
    )


def _path(release: str) -> str:
    return f"releases/{release}/manifest.json"


def _withdraw(offers: list[dict[str, Any]], names: set[str], boards: set[str]) -> None:
    """Removes boards from the offers of models, and offers without boards."""
    for offer in offers:
        if offer["name"] in names:
            offer["boards"] = [board for board in offer["boards"] if board not in boards]
    offers[:] = [offer for offer in offers if offer["boards"]]


def _is_old(signed: Mapping[str, Any], name: str, version: int, now: float) -> bool:
    """Whether metadata names another version than this, or a part of its time has passed."""
    if not signed or signed["meta"][name]["version"] != version:
        return True
    return _is_aged(signed, now)


def _is_aged(signed: Mapping[str, Any], now: float) -> bool:
    """Whether a part of the time of metadata has passed, or its time is yet to come."""
    made = signed_seconds(signed)
    return not made <= now < made + _RENEW * DAYS[signed["_type"]] * 86400

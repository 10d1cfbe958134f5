"""Our client of update metadata decides as python-tuf's does, over the same repositories.

Each step publishes the same roles, versions, times, thresholds and signers in both formats; then
both clients refresh. They differ in the scheme of signatures only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.trusted import ROLES, TrustedMetadata, instant, key_id, key_object
from edgekit.device.runtime.errors import TransferError
from edgekit.host.deploy.bundle import SigningKey, signing_key
from edgekit.host.fleet.updates.metadata import sign

pytest.importorskip("tuf", reason="needs the package tuf")
from securesystemslib.signer import CryptoSigner
from tuf.api import exceptions, metadata
from tuf.ngclient import FetcherInterface, Updater

pytestmark = pytest.mark.slow

_DAY = 86400
ONE = {role: (1, (role,)) for role in ROLES}  # the threshold and keys of each role


@dataclass(frozen=True)
class Made:
    """A metadata file in our format and in theirs."""

    name: str
    version: int
    ours: bytes
    theirs: bytes


class Served(FetcherInterface):
    """What the server has, for python-tuf."""

    def __init__(self, files: Mapping[str, Made]) -> None:
        self._files = files

    def _fetch(self, url: str) -> Iterator[bytes]:
        found = self._files.get(url.rpartition("/")[2])
        if found is None:
            raise exceptions.DownloadHTTPError("no such file", 404)
        yield found.theirs


@dataclass
class Twins:
    """A repository in both formats, with a client of each that keeps what it trusts."""

    folder: Path
    files: dict[str, Made] = field(default_factory=dict)
    keys: dict[str, tuple[SigningKey, CryptoSigner]] = field(default_factory=dict)

    def begin(self, root: Made) -> None:
        """Gives both clients the root that they trust from the beginning."""
        for name, data in (("ours", root.ours), ("theirs", root.theirs)):
            (self.folder / name).mkdir()
            (self.folder / name / "root.json").write_bytes(data)
        self.first = root.theirs

    def key(self, name: str) -> tuple[SigningKey, CryptoSigner]:
        if name not in self.keys:
            ours = signing_key(self.folder / "keys" / name)
            self.keys[name] = ours, CryptoSigner.generate_ed25519()
        return self.keys[name]

    def root(
        self,
        version: int,
        roles: Mapping[str, tuple[int, Sequence[str]]] = ONE,
        by: Sequence[str] = ("root",),
        days: float = 30,
    ) -> Made:
        """Root metadata with the threshold and keys of each role."""
        theirs = metadata.Root(version, expires=_ends(days), consistent_snapshot=True)
        keys, ours = {}, {}
        for role, (needed, names) in roles.items():
            objects = [key_object(self.key(name)[0].public.line) for name in names]
            keys.update({key_id(one): one for one in objects})
            ours[role] = {"keyids": [key_id(one) for one in objects], "threshold": needed}
            for name in names:
                theirs.add_key(self.key(name)[1].public_key, role)
            theirs.roles[role].threshold = needed
        content = {"consistent_snapshot": True, "keys": keys, "roles": ours}
        return self._made(f"{version}.root.json", "root", theirs, content, by, days)

    def targets(
        self, version: int, by: Sequence[str] = ("targets",), days: float = 30, mark: str = ""
    ) -> Made:
        custom = {"mark": mark}
        theirs = metadata.Targets(version, expires=_ends(days), unrecognized_fields=custom)
        content = {"targets": {}, **custom}
        return self._made(f"{version}.targets.json", "targets", theirs, content, by, days)

    def snapshot(
        self, version: int, targets: Made, by: Sequence[str] = ("snapshot",), days: float = 30
    ) -> Made:
        meta = {"targets.json": _theirs(targets)}
        theirs = metadata.Snapshot(version, expires=_ends(days), meta=meta)
        content = {"meta": {"targets.json": _ours(targets)}}
        return self._made(f"{version}.snapshot.json", "snapshot", theirs, content, by, days)

    def timestamp(
        self, version: int, snapshot: Made, by: Sequence[str] = ("timestamp",), days: float = 30
    ) -> Made:
        theirs = metadata.Timestamp(version, expires=_ends(days), snapshot_meta=_theirs(snapshot))
        content = {"meta": {"snapshot.json": _ours(snapshot)}}
        return self._made("timestamp.json", "timestamp", theirs, content, by, days)

    def release(self, version: int, **changes: Any) -> list[Made]:
        """Targets, snapshot and timestamp of a version."""
        targets = self.targets(version, **changes)
        snapshot = self.snapshot(version, targets)
        return [targets, snapshot, self.timestamp(version, snapshot)]

    def publish(self, *made: Made) -> bool:
        """Serves files; both clients refresh. Returns whether both accept, since they agree."""
        self.files.update({one.name: one for one in made})
        ours, theirs = self._refresh_ours(), self._refresh_theirs()
        assert ours == theirs
        roles = ROLES if not ours else ("root",)
        assert self.versions("ours", roles) == self.versions("theirs", roles)
        return not ours

    def versions(self, whose: str, roles: Sequence[str] = ROLES) -> list[int]:
        """The versions that a client trusts."""
        paths = [self.folder / whose / f"{role}.json" for role in roles]
        return [json.loads(path.read_bytes())["signed"]["version"] for path in paths]

    def _refresh_ours(self) -> bool:
        """Whether our client refuses."""

        def download(name: str, most: int) -> bytes | None:
            found = self.files.get(name)
            return found.ours if found else None

        try:
            TrustedMetadata(self.folder / "ours").update(download)
        except TransferError:
            return True
        return False

    def _refresh_theirs(self) -> bool:
        """Whether python-tuf's client refuses."""
        folder, server = self.folder / "theirs", "http://localhost/"
        try:
            fetcher = Served(self.files)
            Updater(str(folder), server, fetcher=fetcher, bootstrap=self.first).refresh()
        except (exceptions.RepositoryError, exceptions.DownloadError):
            return True
        return False

    def _made(
        self,
        name: str,
        role: str,
        theirs: Any,
        content: Mapping[str, Any],
        by: Sequence[str],
        days: float,
    ) -> Made:
        now = time.time()
        common = {"_type": role, "spec_version": "1.0.31", "version": theirs.version}
        times = {"expires": instant(now + days * _DAY), "signed_at": instant(now - 60 * _DAY)}
        both = [self.key(one) for one in by]
        ours = sign({**common, **times, **content}, [one for one, _ in both])
        signed: metadata.Metadata[Any] = metadata.Metadata(theirs)
        for _, signer in both:
            signed.sign(signer, append=True)
        return Made(name, theirs.version, ours, signed.to_bytes())


def _ends(days: float) -> datetime:
    return (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)


def _ours(made: Made) -> dict[str, Any]:
    digest = sha256(made.ours).hexdigest()
    return {"version": made.version, "length": len(made.ours), "hashes": {"sha256": digest}}


def _theirs(made: Made) -> metadata.MetaFile:
    digest = sha256(made.theirs).hexdigest()
    return metadata.MetaFile(made.version, len(made.theirs), {"sha256": digest})


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    made = Twins(tmp_path)
    made.begin(made.root(1))
    return made


def test_expiry(twins: Twins) -> None:
    assert twins.publish(*twins.release(1))
    assert not twins.publish(*twins.release(2, days=-1))  # targets
    targets = twins.targets(3)
    late = twins.snapshot(3, targets, days=-1)
    assert not twins.publish(targets, late, twins.timestamp(3, late))
    snapshot = twins.snapshot(4, targets)
    assert not twins.publish(snapshot, twins.timestamp(4, snapshot, days=-1))
    assert twins.publish(twins.timestamp(5, snapshot))
    assert not twins.publish(twins.root(2, days=-1))
    assert twins.publish(twins.root(3))  # the one before may have expired


def test_rollback(twins: Twins) -> None:
    old = twins.release(1)
    assert twins.publish(*old)
    new = twins.release(2)
    assert twins.publish(*new)
    assert not twins.publish(old[2])  # of the timestamp
    assert not twins.publish(twins.timestamp(3, old[1]))  # of the snapshot
    back = twins.snapshot(3, old[0])
    assert not twins.publish(back, twins.timestamp(4, back))  # of targets
    assert twins.publish(*twins.release(5))


def test_freeze(twins: Twins) -> None:
    """A server that shows the same files for ever is believed until they expire."""
    made = twins.release(1)
    assert twins.publish(*made)
    assert twins.publish(*made)
    assert twins.publish(twins.timestamp(1, made[1], days=20))  # of the version that is known
    twins.files.pop("timestamp.json")
    assert not twins.publish()


def test_mix_and_match(twins: Twins) -> None:
    first = twins.release(1)
    assert twins.publish(*first)
    targets, snapshot, timestamp = twins.release(2)
    other = twins.targets(2, mark="another release")
    assert not twins.publish(other, snapshot, timestamp)
    assert twins.publish(targets)
    one, two = twins.snapshot(3, twins.targets(3)), twins.snapshot(3, twins.targets(3, mark="b"))
    assert not twins.publish(twins.targets(3), two, twins.timestamp(3, one))
    assert not twins.publish(twins.timestamp(4, two))  # whose targets are missing


def test_the_same_version_of_another_content(twins: Twins) -> None:
    assert twins.publish(*twins.release(1))
    other = twins.targets(1, mark="another")
    snapshot = twins.snapshot(2, other)
    assert twins.publish(other, snapshot, twins.timestamp(2, snapshot))
    held = [
        json.loads((twins.folder / who / "targets.json").read_bytes()) for who in ("ours", "theirs")
    ]
    assert [one["signed"]["mark"] for one in held] == ["another", "another"]


@pytest.mark.parametrize("role", ["targets", "snapshot", "timestamp"])
def test_a_stranger_signs(twins: Twins, role: str) -> None:
    assert twins.publish(*twins.release(1))
    by = {one: (("stranger",) if one == role else (one,)) for one in ROLES}
    targets = twins.targets(2, by["targets"])
    snapshot = twins.snapshot(2, targets, by["snapshot"])
    assert not twins.publish(targets, snapshot, twins.timestamp(2, snapshot, by["timestamp"]))


def test_root_rotates_with_thresholds(twins: Twins) -> None:
    assert twins.publish(*twins.release(1))
    two = {**ONE, "root": (2, ("a", "b", "c"))}
    assert not twins.publish(twins.root(2, two, by=("root", "a")))  # one of two new keys
    assert not twins.publish(twins.root(2, two, by=("a", "b")))  # not by the old key
    skips = twins.root(3, two, by=("root", "a", "b"))
    assert not twins.publish(replace(skips, name="2.root.json"))
    assert twins.publish(twins.root(2, two, by=("root", "a", "b")))
    assert not twins.publish(twins.root(3, two, by=("root", "c")))
    assert twins.publish(twins.root(3, two, by=("c", "a")), twins.root(4, two, by=("b", "c")))


def test_two_keys_must_sign_targets(twins: Twins) -> None:
    two = {**ONE, "targets": (2, ("a", "b"))}
    assert twins.publish(twins.root(2, two), *twins.release(1, by=("a", "b")))
    assert not twins.publish(*twins.release(2, by=("a",)))
    assert not twins.publish(*twins.release(2, by=("a", "stranger")))
    assert twins.publish(*twins.release(3, by=("b", "a")))


@pytest.mark.parametrize("role", ["targets", "snapshot", "timestamp"])
def test_what_a_revoked_key_signed_is_not_believed(twins: Twins, role: str) -> None:
    assert twins.publish(*twins.release(1))
    assert not twins.publish(twins.root(2, {**ONE, role: (1, ("new",))}))
    by = {one: ("new",) if one == role else (one,) for one in ROLES}
    targets = twins.targets(1, by["targets"], mark="signed again")
    snapshot = twins.snapshot(1, targets, by["snapshot"])
    # Versions begin anew where the key that counted them is gone.
    accepted = twins.publish(targets, snapshot, twins.timestamp(1, snapshot, by["timestamp"]))
    assert accepted == (role == "timestamp")
    targets = twins.targets(2, by["targets"])
    snapshot = twins.snapshot(2, targets, by["snapshot"])
    assert twins.publish(targets, snapshot, twins.timestamp(2, snapshot, by["timestamp"]))


def test_a_thief_counted_versions_up(twins: Twins) -> None:
    targets = twins.targets(1)
    snapshot = twins.snapshot(1 << 20, targets)
    assert twins.publish(targets, snapshot, twins.timestamp(1 << 20, snapshot))
    assert not twins.publish(*twins.release(2))
    both = {**ONE, "snapshot": (1, ("new",)), "timestamp": (1, ("new",))}
    snapshot = twins.snapshot(3, targets, by=("new",))
    assert twins.publish(twins.root(2, both), snapshot, twins.timestamp(3, snapshot, by=("new",)))


def test_a_key_more_lets_nobody_go_back(twins: Twins) -> None:
    old = twins.release(1)
    assert twins.publish(*old)
    assert twins.publish(*twins.release(2))
    more = {**ONE, **{role: (1, (role, "more")) for role in ("snapshot", "timestamp")}}
    assert not twins.publish(twins.root(2, more), *old)

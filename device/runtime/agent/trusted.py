"""The update metadata that a board trusts, checked as The Update Framework (TUF) describes.

Four roles sign: root (which keys belong to which role), targets (which boards should run which
release), snapshot and timestamp (the current versions of these). The keys of snapshot and timestamp
are on the server; they can withhold releases until the metadata expires, and nothing else. Files
follow TUF 1.0 with consistent snapshots. Signatures are ssh-keygen's, so that boards need no
cryptography of their own: key type ssh-ed25519, scheme sshsig.

Expiry is checked against the board's clock or, if that is earlier, against the latest time at which
trusted metadata was signed, so that a clock in 1970 is no obstacle.
"""

from __future__ import annotations

import calendar
import contextlib
import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from edgekit.device.runtime.agent.signing import is_signature_by, parse_key
from edgekit.device.runtime.agent.store import write_synced
from edgekit.device.runtime.agent.strict import distinct_keys, integer, matching, no_constant, short
from edgekit.device.runtime.errors import InputError, TransferError
from edgekit.device.runtime.record import Record

NAMESPACE = "edgekit-metadata"
ROOT, TARGETS, SNAPSHOT, TIMESTAMP = "root", "targets", "snapshot", "timestamp"
ROLES = (ROOT, TARGETS, SNAPSHOT, TIMESTAMP)
SPEC = "1.0.31"
MOST_BYTES = {ROOT: 1 << 16, TARGETS: 8 << 20, SNAPSHOT: 1 << 14, TIMESTAMP: 1 << 14}
_MOST_VERSION = 1 << 31
_MOST_ROOTS = 64  # new versions in one update
_MOST_SIGNATURES = 16
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_HEX = re.compile("[0-9a-f]{64}")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")

# Returns the bytes of a metadata file of at most so many bytes, None if the server has none.
Download = Callable[[str, int], Optional[bytes]]


class Meta(Record):
    """A metadata file: the role's `signed` part, the times it states, the SHA-256 of the file, and
    the signatures by key id."""

    signed: Dict[str, Any]
    version: int
    expires: int
    signed_at: int
    sha256: str
    signatures: Dict[str, bytes]


class Pointer(Record):
    """The version of another metadata file, with its size and SHA-256."""

    version: int
    length: int
    sha256: str


def canonical(value: object) -> bytes:
    """The bytes that are signed: sorted keys, no white space. A server may send text that is no
    Unicode, which then has no valid signature."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def key_object(line: str) -> Dict[str, Any]:
    """A public key as root metadata has it."""
    return {"keytype": "ssh-ed25519", "keyval": {"public": line}, "scheme": "sshsig"}


def key_id(key: Dict[str, Any]) -> str:
    return hashlib.sha256(canonical(key)).hexdigest()


def instant(seconds: float) -> str:
    """A time, in seconds since 1970, as metadata states it."""
    return time.strftime(_TIME, time.gmtime(seconds))


class TrustedMetadata:
    """The newest metadata that this board has verified, in `folder`, which begins with the
    root.json of the enrollment. `clock` returns seconds since 1970."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._held: Dict[str, Meta] = {}
        for role in ROLES:
            # Without a damaged file the board begins anew; releases have counters of their own.
            with contextlib.suppress(FileNotFoundError, TransferError):
                self._held[role] = _parse((folder / f"{role}.json").read_bytes(), role)
        if ROOT not in self._held:
            raise InputError(
                "expected the root metadata of a server of releases, found none; on the host: "
                "edgekit fleet enroll BOARD --releases FOLDER"
            )

    @property
    def root(self) -> Dict[str, Any]:
        """The root metadata that is trusted now."""
        return self._held[ROOT].signed

    @property
    def certificate(self) -> str:
        """SHA-256 of the server's certificate that root announces; empty if it names none."""
        found = self.root.get("certificate", "")
        return found if isinstance(found, str) and _HEX.fullmatch(found) else ""

    @property
    def targets(self) -> Dict[str, Any]:
        """The targets of the last successful update."""
        found = self._held.get(TARGETS)
        return found.signed["targets"] if found else {}

    def update(self, download: Download) -> Dict[str, Any]:
        """Fetches what is new and returns the current targets. TransferError if something is
        missing, not signed by enough keys, older than before, mixed up or expired; what was
        verified before that is kept, nothing else."""
        self._update_root(download)
        self._check_expiry(ROOT)
        data = _fetch(download, "timestamp.json", MOST_BYTES[TIMESTAMP])
        new = self._verified(data, TIMESTAMP)
        self._take(TIMESTAMP, data, new, "snapshot.json")
        self._check_expiry(TIMESTAMP)
        self._follow(download, TIMESTAMP, SNAPSHOT, "targets.json")
        self._follow(download, SNAPSHOT, TARGETS, "")
        return self.targets

    def _update_root(self, download: Download) -> None:
        """Goes from each version of root to the next, which both must have signed."""
        for _ in range(_MOST_ROOTS):
            old = self._held[ROOT]
            data = download(f"{old.version + 1}.root.json", MOST_BYTES[ROOT])
            if data is None:
                return
            new = _parse(data, ROOT)
            self._check_signatures(old.signed, new, ROOT)
            self._check_signatures(new.signed, new, ROOT)
            if new.version != old.version + 1:
                raise _wrong(ROOT, f"version {old.version + 1}", f"version {new.version}")
            self._drop_revoked(new)
            self._keep(ROOT, data, new)
        raise _wrong(ROOT, f"at most {_MOST_ROOTS} new versions", "more")

    def _drop_revoked(self, root: Meta) -> None:
        """Forgets what the keys of a new root have not signed, so that a thief's releases and high
        versions end with the key."""
        for role in (TIMESTAMP, SNAPSHOT, TARGETS):
            if role in self._held:
                try:
                    self._check_signatures(root.signed, self._held[role], role)
                except TransferError:
                    del self._held[role]
                    (self._folder / f"{role}.json").unlink(missing_ok=True)

    def _follow(self, download: Download, by: str, role: str, inner: str) -> None:
        """Fetches `role` in the version that `by` names, unless it is held already."""
        wanted = _pointer(self._held[by], f"{role}.json")
        held = self._held.get(role)
        if held is None or (held.version, held.sha256) != (wanted.version, wanted.sha256):
            name = f"{wanted.version}.{role}.json"
            data = _fetch(download, name, min(wanted.length, MOST_BYTES[role]))
            if len(data) != wanted.length or hashlib.sha256(data).hexdigest() != wanted.sha256:
                found = f"{len(data)} bytes with SHA-256 {hashlib.sha256(data).hexdigest()[:16]}"
                raise _wrong(role, f"{wanted.length} bytes with {wanted.sha256[:16]}", found)
            new = self._verified(data, role)
            if new.version != wanted.version:
                raise _wrong(role, f"version {wanted.version}", f"version {new.version}")
            self._take(role, data, new, inner)
        self._check_expiry(role)

    def _take(self, role: str, data: bytes, new: Meta, inner: str) -> None:
        """Keeps a new version, unless it or what it points to is older than what is held."""
        old = self._held.get(role)
        if old is not None and role == TIMESTAMP and new.version == old.version:
            return
        if old is not None and new.version < old.version:
            raise _wrong(role, f"version {old.version} or newer", f"version {new.version}")
        if old is not None and inner:
            before, after = _pointer(old, inner), _pointer(new, inner)
            if after.version < before.version:
                raise _wrong(
                    role,
                    f"{inner} of version {before.version} or newer",
                    f"version {after.version}",
                )
        self._check_expiry_of(role, new)
        self._keep(role, data, new)

    def _keep(self, role: str, data: bytes, new: Meta) -> None:
        write_synced(self._folder / f"{role}.json", data)
        self._held[role] = new

    def _verified(self, data: bytes, role: str) -> Meta:
        new = _parse(data, role)
        self._check_signatures(self._held[ROOT].signed, new, role)
        return new

    def _check_signatures(self, root: Dict[str, Any], new: Meta, role: str) -> None:
        """TransferError unless enough different keys of the role signed."""
        keys, needed = role_keys(root, role)
        data = canonical(new.signed)
        good = set()
        for name, line in keys.items():
            if name in new.signatures and is_signature_by(
                line, NAMESPACE, data, new.signatures[name], self._folder
            ):
                good.add(line)
        if len(good) < needed:
            raise _wrong(role, f"signatures by {needed} of its keys", f"{len(good)}")

    def _check_expiry(self, role: str) -> None:
        self._check_expiry_of(role, self._held[role])

    def _check_expiry_of(self, role: str, meta: Meta) -> None:
        now = max(self._clock(), *(float(one.signed_at) for one in self._held.values()))
        if meta.expires <= now:
            raise TransferError(
                f"{role} metadata: expected it to be valid at {instant(now)}, found that it "
                f"expired at {instant(meta.expires)}; see the server, and this board's clock"
            )


def _parse(data: bytes, role: str) -> Meta:
    """Reads a metadata file without checking its signatures."""
    try:
        raw = json.loads(data, object_pairs_hook=distinct_keys, parse_constant=no_constant)
        signed = raw["signed"]
        if signed["_type"] != role or not signed["spec_version"].startswith("1."):
            raise ValueError(f"the type {signed['_type']!r}")
        signatures = {}
        rows = raw["signatures"]
        if not isinstance(rows, list) or len(rows) > _MOST_SIGNATURES:
            raise ValueError("too many signatures")
        for row in rows:
            if row["keyid"] in signatures:
                raise ValueError("two signatures of a key")
            signatures[row["keyid"]] = row["sig"].encode("ascii")
        meta = Meta(
            signed,
            integer(signed["version"], "version", 1, _MOST_VERSION),
            _seconds(signed["expires"], "expires"),
            _seconds(signed["signed_at"], "signed_at"),
            hashlib.sha256(data).hexdigest(),
            signatures,
        )
        if role == ROOT:
            for each in ROLES:
                role_keys(signed, each)
        elif role == TARGETS:
            if not isinstance(signed["targets"], dict):
                raise ValueError("no targets")
        else:
            _pointer(meta, "targets.json" if role == SNAPSHOT else "snapshot.json")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else short(error)
        raise _wrong(role, "a file of The Update Framework", found) from None
    return meta


def role_keys(root: Dict[str, Any], role: str) -> Tuple[Dict[str, str], int]:
    """The public keys of a role by id, and how many must sign."""
    own = root["roles"][role]
    names: List[str] = list(own["keyids"])
    keys = {}
    for name in names:
        key = root["keys"][name]
        if key_id(key) != name:
            raise ValueError("a key under another id")
        keys[name] = parse_key(key["keyval"]["public"]).line
    needed = integer(own["threshold"], "threshold", 1, max(len(set(keys.values())), 1))
    if not keys:
        raise ValueError(f"no keys of {role}")
    return keys, needed


def _pointer(meta: Meta, name: str) -> Pointer:
    raw = meta.signed["meta"][name]
    return Pointer(
        integer(raw["version"], "version", 1, _MOST_VERSION),
        integer(raw["length"], "length", 1),
        matching(raw["hashes"]["sha256"], "sha256", _HEX, "64 hexadecimal digits"),
    )


def _seconds(raw: object, where: str) -> int:
    text = matching(raw, where, _INSTANT, "a time as 2030-01-31T12:00:00Z")
    return calendar.timegm(time.strptime(text, _TIME))


def _fetch(download: Download, name: str, most: int) -> bytes:
    data = download(name, most)
    if data is None:
        raise TransferError(f"{name}: expected it on the server, found none; see the server")
    return data


def _wrong(role: str, expected: str, found: str) -> TransferError:
    return TransferError(
        f"{role} metadata: expected {expected}, found {found}; nothing changed on this board"
    )

"""Writes the metadata that device/runtime/agent/trusted.py verifies."""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.signing import is_signature_by
from edgekit.device.runtime.agent.trusted import (
    NAMESPACE,
    ROOT,
    SNAPSHOT,
    SPEC,
    TARGETS,
    TIMESTAMP,
    canonical,
    instant,
    key_id,
    key_object,
)
from edgekit.host.common.paths import data_folder
from edgekit.host.deploy.bundle import SigningKey, host_key, sign_data, signing_key

_DAY = 86400
DAYS = {ROOT: 3 * 365, TARGETS: 365, SNAPSHOT: 7, TIMESTAMP: 7}  # until each expires


@dataclass(frozen=True)
class OwnerKeys:
    """The keys of a folder's owner, which a server never needs. `root_needed` of the root keys must
    sign who else may; `targets_needed` of the others must sign which releases are offered."""

    root: tuple[SigningKey, ...]
    targets: tuple[SigningKey, ...]
    root_needed: int = 1
    targets_needed: int = 1

    @staticmethod
    def of_host() -> OwnerKeys:
        """This user's keys; generates them on first use."""
        return OwnerKeys((signing_key(data_folder() / "root-key"),), (host_key(),))


@dataclass(frozen=True)
class Offered:
    """A release of model `name` that `boards` should run, or with `back` should return from."""

    release: str
    name: str
    rollout: str
    boards: tuple[str, ...]
    back: bool = False


def sign(signed: Mapping[str, Any], keys: Sequence[SigningKey]) -> bytes:
    """The metadata file of `signed`, signed by all `keys`."""
    data = canonical(signed)
    signatures = [
        {
            "keyid": key_id(key_object(key.public.line)),
            "sig": sign_data(data, key, NAMESPACE).decode("ascii"),
        }
        for key in keys
    ]
    return json.dumps({"signatures": signatures, "signed": signed}, sort_keys=True).encode() + b"\n"


def new_signed(role: str, version: int, now: float, **content: object) -> dict[str, Any]:
    """The `signed` part of a role's metadata, valid from `now` for the time of the role."""
    return {
        "_type": role,
        "spec_version": SPEC,
        "version": version,
        "expires": instant(now + DAYS[role] * _DAY),
        "signed_at": instant(now),
        **content,
    }


def signed_seconds(signed: Mapping[str, Any]) -> int:
    """When metadata was signed, in seconds since 1970."""
    return calendar.timegm(time.strptime(signed["signed_at"], "%Y-%m-%dT%H:%M:%SZ"))


def root_content(owner: OwnerKeys, online: str, certificate: str) -> dict[str, Any]:
    """The keys of all roles; `online` is the public key of the server's, `certificate` the SHA-256
    of the certificate that it was given last, if any."""
    keys: dict[str, Any] = {}
    roles: dict[str, Any] = {}
    for role, own, needed in (
        (ROOT, _lines(owner.root), owner.root_needed),
        (TARGETS, _lines(owner.targets), owner.targets_needed),
        (SNAPSHOT, [online], 1),
        (TIMESTAMP, [online], 1),
    ):
        objects = [key_object(line) for line in own]
        names = [key_id(one) for one in objects]
        keys.update(zip(names, objects, strict=True))
        roles[role] = {"keyids": sorted(names), "threshold": needed}
    announced = {"certificate": certificate} if certificate else {}
    return {"consistent_snapshot": True, "keys": keys, "roles": roles, **announced}


def public_lines(root: Mapping[str, Any], role: str) -> list[str]:
    """The public keys of a role in root metadata."""
    return [root["keys"][name]["keyval"]["public"] for name in root["roles"][role]["keyids"]]


def is_signed(path: Path, lines: Sequence[str]) -> bool:
    """Whether one of these public keys has signed a metadata file."""
    content = json.loads(path.read_bytes())
    data, wanted = canonical(content["signed"]), {key_id(key_object(line)): line for line in lines}
    return any(
        is_signature_by(wanted[one["keyid"]], NAMESPACE, data, one["sig"].encode(), path.parent)
        for one in content["signatures"]
        if one["keyid"] in wanted
    )


def _lines(keys: Sequence[SigningKey]) -> list[str]:
    return [key.public.line for key in keys]


def read_signed(path: Path) -> dict[str, Any]:
    """The `signed` part of a file that this host wrote."""
    signed: dict[str, Any] = json.loads(path.read_bytes())["signed"]
    return signed

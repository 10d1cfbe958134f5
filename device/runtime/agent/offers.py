"""Which releases verified metadata offers to a board."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from edgekit.device.runtime.agent.manifest import MAX_MANIFEST_BYTES
from edgekit.device.runtime.agent.signing import MAX_SIGNATURE_BYTES
from edgekit.device.runtime.agent.strict import bad, each, integer, matching, short
from edgekit.device.runtime.errors import TransferError
from edgekit.device.runtime.record import Record

_TARGET = re.compile(r"releases/([0-9a-f]{16})/manifest\.json")
_HEX = re.compile("[0-9a-f]{64}")
_ROLLOUT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NAME = re.compile(r"[a-z0-9_-]{0,32}")


class SizedFile(Record):
    """A file on the server."""

    sha256: str
    length: int


class Offer(Record):
    """The release of model `name` that this board should run; with `back`, the board should
    return from it to the release before."""

    release: str
    name: str
    rollout: str
    back: bool
    manifest: SizedFile
    signature: Optional[SizedFile]


def offers_for(targets: Dict[str, Any], board: str) -> List[Offer]:
    """What verified targets metadata offers to `board`; TransferError if that makes no sense."""
    try:
        found = _offers_of(targets, board)
    except (KeyError, TypeError, AttributeError) as error:
        raise TransferError(
            f"targets metadata: expected offers, found {short(repr(error))}; see the server"
        ) from None
    return sorted(found.values(), key=lambda offer: offer.name)


def _offers_of(targets: Dict[str, Any], board: str) -> Dict[str, Offer]:
    found: Dict[str, Offer] = {}
    for path, raw in targets.items():
        where = _TARGET.fullmatch(path)
        if where is None:
            continue
        custom = raw["custom"]
        for offer in each(custom["offers"], "offers", lambda one, _: one):
            if board not in offer["boards"]:
                continue
            name = matching(offer["name"], "name", _NAME, "the name of a model")
            if name in found:
                raise bad("targets", f"one release of '{name}' for this board", "two")
            found[name] = Offer(
                where[1],
                name,
                matching(offer["rollout"], "rollout", _ROLLOUT, "the id of a rollout"),
                offer["back"] is True,
                _sized(raw["hashes"]["sha256"], raw["length"], MAX_MANIFEST_BYTES),
                custom["signature"]
                and _sized(
                    custom["signature"]["sha256"],
                    custom["signature"]["length"],
                    MAX_SIGNATURE_BYTES,
                ),
            )
    return found


def _sized(sha256: object, length: object, most: int) -> SizedFile:
    return SizedFile(
        matching(sha256, "sha256", _HEX, "64 hexadecimal digits"),
        integer(length, "length", 1, most),
    )

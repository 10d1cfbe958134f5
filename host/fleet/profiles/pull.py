"""Pulls batches from a board; each response is stored before the board may delete it."""

from __future__ import annotations

import binascii
import zlib
from dataclasses import dataclass, replace
from typing import Literal

from edgekit.host.deploy.release import BoardCalls
from edgekit.host.errors import TransferError
from edgekit.host.fleet.profiles.store import ProfileStore, StoredBatches

_SECONDS = 300.0
_MOST_BYTES = 8 << 20  # of a response, unpacked
_MOST_ROUNDS = 10_000


@dataclass(frozen=True)
class Pulled:
    """The batches pulled, the board's totals of dropped and quarantined ones, and whether it
    samples."""

    stored: StoredBatches
    dropped: int
    quarantined: int
    on: bool


def pull(board: BoardCalls, store: ProfileStore) -> Pulled:
    """Pulls all waiting batches. On any failure a batch is in the store or still on the board."""
    stored, receipt = StoredBatches(), ""
    for _ in range(_MOST_ROUNDS):
        options = ("--acknowledge", receipt) if receipt else ()
        found = board.call("profile", *options, deadline=_SECONDS)
        state = Pulled(stored, found["dropped"], found["quarantined"], found["on"])
        stream = _unpack(board.name, found["data"])
        if not stream:
            return state
        stored += store.add(board.name, stream)
        receipt = f"{found['spool']}/{found['through']}"
    return replace(state, stored=stored)


Sampling = Literal["on", "off", "explore"]


def switch(board: BoardCalls, sampling: Sampling) -> None:
    """Turns sampling on a board on or off, for processes started from now on; "explore": on, and
    products are also computed with other methods."""
    board.call("profile", "--switch", sampling, deadline=_SECONDS)


def _unpack(board: str, text: str) -> bytes:
    try:
        packed = binascii.a2b_base64(text)
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, _MOST_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        data, unpacker = b"", None
    if unpacker is None or not unpacker.eof:
        raise TransferError(
            f"board '{board}': profile: expected compressed batches of at most {_MOST_BYTES} "
            "bytes, found other data; try again"
        )
    return data

"""Batches that this edgekit cannot read, kept for one that can.

<board>/<name>.batch  a file of a spool: batches, unmodified
<board>/<name>.txt    why, one line per reason

`edgekit profile pull --spool FOLDER` stores them once edgekit is new enough. What a request brought
is one file, written once; each board has its own quota.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.agent.batch import framed
from edgekit.host.common.files import atomic_write, locked
from edgekit.host.fleet.profiles.parquet import sync_folder

_LOG = logging.getLogger(__name__)
_HEAD = re.compile(rb"EKP1 ([0-9]{1,8}) ([0-9a-f]{64})\n")
_MOST_REASONS = 20  # per file


@dataclass(frozen=True)
class StorageLimits:
    """How much is kept of one board, and of all."""

    board_files: int = 64
    board_bytes: int = 4 << 20
    files: int = 10_000
    bytes: int = 64 << 20


_LIMITS = StorageLimits()


def keep_refused(
    folder: Path, board: str, refused: Sequence[tuple[bytes, str]], limits: StorageLimits = _LIMITS
) -> None:
    """Keeps bodies with the reasons, durably, unless they are there already. The oldest files above
    `limits` are deleted and counted in the log."""
    own = folder / board
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        there = {digest for path in own.glob("*.batch") for digest in _digests(path.read_bytes())}
        new = {_sha256(body): (body, why) for body, why in refused}
        new = {digest: found for digest, found in new.items() if digest not in there}
        if not new:
            return
        name = _sha256("".join(new).encode())[:32]
        reasons = list(dict.fromkeys(why for _, why in new.values()))[:_MOST_REASONS]
        atomic_write(own / f"{name}.txt", "".join(f"{why}\n" for why in reasons).encode())
        atomic_write(own / f"{name}.batch", b"".join(framed(body) for body, _ in new.values()))
        sync_folder(own)
        sync_folder(folder)
        gone = _evict_oldest(own.glob("*.batch"), limits.board_files, limits.board_bytes)
        gone += _evict_oldest(folder.glob("*/*.batch"), limits.files, limits.bytes)
    if gone:
        _LOG.warning("profiles: %d files of refused batches were removed for lack of space", gone)


def _evict_oldest(paths: Iterator[Path], most_files: int, most_bytes: int) -> int:
    """Deletes the oldest files above the limits; returns their number."""
    about = [(path.stat(), path) for path in paths]
    kept, size, gone = 0, 0, 0
    for found, path in sorted(about, key=lambda one: (-one[0].st_mtime_ns, one[1].name)):
        kept, size = kept + 1, size + found.st_size
        if kept > most_files or size > most_bytes:
            path.unlink()
            path.with_suffix(".txt").unlink(missing_ok=True)
            gone += 1
    return gone


def _digests(data: bytes) -> Iterator[str]:
    """The SHA-256 of each batch in a file, by its header."""
    at = 0
    while head := _HEAD.match(data, at):
        yield head[2].decode()
        at = head.end() + int(head[1])


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

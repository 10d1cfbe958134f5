"""Keeps a bounded number of batches that this version cannot read, for one that can."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

from edgekit.host.common.files import atomic_write
from edgekit.host.fleet.profiles.parquet import sync_folder

_MOST_BYTES = 64 << 20
_MOST_BATCHES = 10_000
_LOG = logging.getLogger(__name__)


def keep_refused(folder: Path, board: str, refused: Iterable[tuple[bytes, str]]) -> None:
    """Stores rejected batches with the reason, deduplicated; the oldest are deleted above the limit
    and counted in the log."""
    for body, why in refused:
        folder.mkdir(exist_ok=True)
        name = hashlib.sha256(body).hexdigest()[:32]
        atomic_write(folder / f"{name}.txt", f"{board}: {why}\n".encode())
        atomic_write(folder / f"{name}.json", body)
    if folder.is_dir():
        _bound(folder)
        sync_folder(folder)


def _bound(folder: Path) -> None:
    about = [(path.stat(), path) for path in folder.glob("*.json")]
    kept, size, gone = 0, 0, 0
    for found, path in sorted(about, key=lambda one: (-one[0].st_mtime_ns, one[1].name)):
        kept, size = kept + 1, size + found.st_size
        if kept > _MOST_BATCHES or size > _MOST_BYTES:
            path.unlink()
            path.with_suffix(".txt").unlink(missing_ok=True)
            gone += 1
    if gone:
        _LOG.warning("profiles: %d refused batches were removed for lack of space", gone)

"""Makes deltas between files of releases, as device/runtime/agent/delta.py applies them.

deltas/<target>.<base>    the delta; empty if it would not be smaller by enough. Each pair is tried
                          once, by the host that offers a release; the server only sends files.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.delta import (
    BLOCK,
    DICTIONARY,
    LEAST_BYTES,
    MAGIC,
    MOST_SHARE,
    WIDTHS,
    delta_name,
)
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.host.common.files import atomic_write
from edgekit.host.fleet.updates.metadata import Offered

_MOST_BYTES = 256 << 20  # of a file; a megabyte takes about a second of CPU
_MOST_BASES = 4  # of a release
_TRIED = 4  # blocks of a file that choose the width of its words
_FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": DICTIONARY},)


def bases_of(targets: Mapping[str, Any], release: str, offers: Sequence[Offered]) -> list[str]:
    """The SHA-256 of the manifests of releases that boards of these offers were offered before;
    those of most boards first."""
    wanted = [one for one in offers if one.release == release and not one.back]
    counts: dict[str, int] = {}
    for path, target in targets.items():
        for offer in target["custom"]["offers"]:
            boards = {board for one in wanted if one.name == offer["name"] for board in one.boards}
            if release not in path and (count := len(boards & set(offer["boards"]))):
                digest = target["hashes"]["sha256"]
                counts[digest] = counts.get(digest, 0) + count
    return sorted(counts, key=lambda digest: -counts[digest])[:_MOST_BASES]


def make_deltas(files: Path, deltas: Path, target: Manifest, base: Manifest) -> None:
    """Makes the deltas from the files of a release to those of the same path in another, of which
    all contents are in `files` by SHA-256; a pair of files that is there already is left."""
    old = {entry.path: entry for entry in base.files}
    for entry in target.files:
        before = old.get(entry.path)
        if before is None or before.sha256 == entry.sha256:
            continue
        if not LEAST_BYTES <= entry.bytes <= _MOST_BYTES:
            continue
        path = deltas / delta_name(entry.sha256, before.sha256)
        sources = (files / before.sha256, files / entry.sha256)
        if not path.exists() and all(source.exists() for source in sources):
            deltas.mkdir(mode=0o700, exist_ok=True)
            atomic_write(path, _delta(*sources))


def _delta(base: Path, target: Path) -> bytes:
    """The delta from a file to another; b"" unless it is smaller by enough."""
    most, blocks = MOST_SHARE * target.stat().st_size, -(-target.stat().st_size // BLOCK)
    tried = sorted({blocks * one // _TRIED for one in range(_TRIED)})
    sizes = {}
    for width in WIDTHS:
        packed = [_pack(block) for block in _differences(base, target, width, tried)]
        sizes[width] = sum(map(len, packed))
    width = min(sizes, key=lambda one: sizes[one])
    packer = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=_FILTERS)
    parts, size = [MAGIC, bytes([width])], 0
    for block in _differences(base, target, width, list(range(blocks))):
        parts.append(packer.compress(block))
        size += len(parts[-1])
        if size > most:
            return b""
    parts.append(packer.flush())
    made = b"".join(parts)
    return made if len(made) <= most else b""


def _pack(block: bytes) -> bytes:
    return lzma.compress(block, lzma.FORMAT_XZ, filters=_FILTERS)


def _differences(base: Path, target: Path, width: int, blocks: list[int]) -> Iterator[bytes]:
    """Of these blocks, (new - old) modulo 256, by planes of words of `width` bytes."""
    with base.open("rb") as old, target.open("rb") as new:
        for block in blocks:
            for file in (old, new):
                file.seek(block * BLOCK)
            after = np.frombuffer(new.read(BLOCK), np.uint8)
            before = np.frombuffer(old.read(after.size).ljust(after.size, b"\0"), np.uint8)
            change = after - before
            yield b"".join(change[place::width].tobytes() for place in range(width))

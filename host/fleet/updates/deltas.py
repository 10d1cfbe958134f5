"""Makes deltas between files of releases, as device/runtime/agent/delta.py applies them.

deltas/<target>.<base>    the delta; empty if it would not be smaller by enough. Each pair is tried
                          once, by the host that offers a release; the server only sends files.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from edgekit.device.runtime.agent.delta import (
    BLOCK,
    COUNT,
    DICTIONARY,
    LEAST_BYTES,
    MAGIC,
    MOST_SHARE,
    PIECE,
    WIDTHS,
    delta_name,
)
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.host.common.files import atomic_write
from edgekit.host.fleet.updates.metadata import Offered

_MOST_BYTES = 256 << 20  # of a file; a megabyte takes about a second of CPU
_MOST_BASES = 4  # of a release
_TRIED = 4  # blocks of a file that choose how it is stored
_CHUNK = 256  # bytes that move together
_REACH = 1 << 20  # how far
_ALIKE = 0.1  # of a chunk: what is equal where nothing moved
_STEP = 4  # between the old offsets that are looked up; code and weights are aligned
_FILTERS = ({"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": DICTIONARY},)

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Index = tuple[Words, npt.NDArray[np.intp]]


class _Way(NamedTuple):
    """The width of words, and whether the old file helps; of a pruned one, it may not."""

    width: int
    is_based: bool


_WAYS = tuple(_Way(width, is_based) for width in WIDTHS for is_based in (True, False))


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
    for way in _WAYS:
        packed = [_pack(block) for block in _blocks(base, target, way, tried)]
        sizes[way] = sum(map(len, packed))
    way = min(sizes, key=lambda one: sizes[one])
    packer = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=_FILTERS)
    parts, size = [MAGIC, bytes([way.width])], 0
    for block in _blocks(base, target, way, list(range(blocks))):
        parts.append(packer.compress(block))
        size += len(parts[-1])
        if size > most:
            return b""
    parts.append(packer.flush())
    made = b"".join(parts)
    return made if len(made) <= most else b""


def _pack(block: bytes) -> bytes:
    return lzma.compress(block, lzma.FORMAT_XZ, filters=_FILTERS)


def _blocks(base: Path, target: Path, way: _Way, blocks: list[int]) -> Iterator[bytes]:
    """These blocks of the body."""
    with base.open("rb") as old, target.open("rb") as new:
        for block in blocks:
            start = block * BLOCK
            new.seek(start)
            after = np.frombuffer(new.read(BLOCK), np.uint8)
            first = max(start - _REACH, 0)
            old.seek(first)
            before = np.frombuffer(old.read(start + after.size + _REACH - first), np.uint8)
            behind = [(base.stat().st_size - first, after.size)]
            pieces = _pieces(before, after, start - first) if way.is_based else behind
            found = np.concatenate([_part(before, at, size) for at, size in pieces])
            change = after - found
            yield b"".join(
                (
                    COUNT.pack(len(pieces)),
                    *(PIECE.pack(first + at, size) for at, size in pieces),
                    *(change[place :: way.width].tobytes() for place in range(way.width)),
                )
            )


def _pieces(before: Bytes, after: Bytes, start: int) -> list[tuple[int, int]]:
    """Where in `before` the bytes most like `after` are, offset and length of each piece; `start`
    is the offset at which they are if nothing moved."""
    index: Index | None = None
    pieces: list[tuple[int, int]] = []
    shift = 0
    for at in range(0, after.size, _CHUNK):
        chunk = after[at : at + _CHUNK]
        likes = {one: _likeness(before, start + at + one, chunk) for one in (0, shift)}
        if max(likes.values()) < _ALIKE * chunk.size:
            index = index or _index(before)
            moved = _moved(index, chunk)
            if moved is not None:
                one = moved - start - at
                likes[one] = _likeness(before, moved, chunk)
        best = max(likes, key=lambda one: (likes[one], one == 0))
        if pieces and best == shift:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + chunk.size)
        else:
            pieces.append((start + at + best, chunk.size))
        shift = best
    return pieces


def _part(before: Bytes, at: int, size: int) -> Bytes:
    """Bytes of the old file; zeros behind its end."""
    found = before[at : at + size]
    return np.concatenate((found, np.zeros(size - found.size, np.uint8)))


def _likeness(before: Bytes, at: int, chunk: Bytes) -> int:
    """How many bytes are equal."""
    if at < 0:
        return -1
    found = before[at : at + chunk.size]
    return int(np.count_nonzero(found == chunk[: found.size]))


def _words(data: Bytes, step: int) -> Words:
    """The eight bytes at each `step`-th offset, as integers."""
    if data.size < 8:
        return np.zeros(0, np.uint64)
    return np.ascontiguousarray(sliding_window_view(data, 8)[::step]).view(np.uint64).ravel()


def _index(before: Bytes) -> Index:
    """All words of the old bytes in order, and their offsets."""
    words = _words(before, _STEP)
    order = np.argsort(words, kind="stable")
    return words[order], order * _STEP


def _moved(index: Index, chunk: Bytes) -> int | None:
    """The offset from which most words of a chunk come; None if none is known."""
    words, offsets = index
    if not words.size or chunk.size < 8:
        return None
    wanted = _words(chunk, 1)
    places = np.minimum(np.searchsorted(words, wanted), words.size - 1)
    (hits,) = np.nonzero(words[places] == wanted)
    starts = offsets[places[hits]] - hits
    starts = starts[starts >= 0]
    if not starts.size:
        return None
    values, counts = np.unique(starts, return_counts=True)
    return int(values[counts.argmax()])

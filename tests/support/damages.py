"""Corruptions of the files in a folder: flipped bits, truncation, appended bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path


def damages(folder: Path, places: int, seed: int = 16) -> Iterator[tuple[Path, bytes]]:
    """Yield each file with corrupted contents, at `places` positions that are the same in every
    run."""
    chosen = random.Random(seed)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        data = path.read_bytes()
        for place in range(places):
            at = chosen.randrange(len(data))
            if place % 3 == 1:
                yield path, data[:at]
            elif place % 3 == 2 and place % 2:
                yield path, data + b"\0"
            else:
                yield (
                    path,
                    data[:at] + bytes([data[at] ^ 1 << chosen.randrange(8)]) + data[at + 1 :],
                )

"""Puts many operator rows into a store of field profiles, as boards send them, and asks it.

    python -m tests.long.profile_store [--rows 10000000]

Counts the processor's seconds, as those of the clock depend on what else the machine does. Exit
code 1 if fewer than 50,000 rows are stored in a second of it, or medians per operator take one.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.device.agent.batch import OperatorSpread, batch_bytes
from edgekit.host.profiles import ProfileStore, query
from tests.support.profile_batches import SPOOL, batch

_OPERATORS = 100
_BATCHES = 40  # of a stream: what a board hands over at once
_BOARDS = 50
_LEAST_ROWS_PER_SECOND = 50_000
_MOST_SECONDS = 1.0
_MEDIANS = "SELECT name, kernel, median(median_ns) FROM operators GROUP BY ALL"


def streams(count: int) -> Iterator[bytes]:
    random = np.random.default_rng(1)
    usual = random.lognormal(11, 1, _OPERATORS)
    names = [(f"model/layer_{i}/conv2d", "Conv2D", f"conv_{i % 7}") for i in range(_OPERATORS)]
    for stream in range(count):
        files = []
        for number in range(stream * _BATCHES, (stream + 1) * _BATCHES):
            medians = (usual * random.lognormal(0, 0.1, _OPERATORS)).astype(int).tolist()
            rows = (
                OperatorSpread(*name, 256, ns, ns * 11 // 10, ns * 2)
                for name, ns in zip(names, medians, strict=True)
            )
            one = replace(batch(number), operators=tuple(rows))
            files.append(batch_bytes(one, SPOOL, number, 0, 0))
        yield b"".join(files)


def seconds() -> float:
    """That this process has taken of the processors."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(folder: Path, rows: int) -> int:
    store, stored, spent = ProfileStore(folder), 0, 0.0
    for i, stream in enumerate(streams(-(-rows // (_BATCHES * _OPERATORS)))):
        begin = seconds()
        stored += store.add(f"board-{i % _BOARDS}", stream).rows
        if i % 20 == 0:
            store.compact()
        spent += seconds() - begin
    asked = []
    for _ in range(3):
        begin = seconds()
        found = query(store, _MEDIANS, 1000)
        asked.append(seconds() - begin)
    assert len(found.rows) == _OPERATORS
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    rate = stored / spent
    print(
        f"{stored:,} rows stored, {rate:,.0f} in a second of the processor, {size >> 20} MiB; "
        f"medians of each operator in {min(asked):.2f} s of it"
    )
    good = rate >= _LEAST_ROWS_PER_SECOND and min(asked) < _MOST_SECONDS
    return 0 if stored >= rows and good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), parser.parse_args().rows)


if __name__ == "__main__":
    sys.exit(main())

"""Puts many operator rows into a store of field profiles, as boards send them, and queries it.

    python -m tests.long.profile_store [--rows 10000000]

Measures CPU seconds, as wall-clock time depends on the machine's other load. Exit code 1 if fewer
than 50,000 rows are stored per CPU second, if medians per operator take a CPU second, or if
`profile report` or `profile compare` take more than 30 CPU seconds or a GiB.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.batch import OperatorSpread, batch_bytes
from edgekit.host.fleet.profiles import ProfileStore, query
from tests.support.profile_batches import SPOOL, batch

_OPERATORS = 100
_BATCHES = 40  # per stream, which is what a board sends at once
_BOARDS = 50
_RELEASES = 4
_LEAST_ROWS_PER_SECOND = 50_000
_MOST_SECONDS = 1.0
_MOST_REPORT_SECONDS = 30.0
_MOST_REPORT_KIB = 1 << 20
_SOURCES = Path(__file__).parents[2] / "src"
_MEDIANS = "SELECT name, kernel, median(median_ns) FROM operators GROUP BY ALL"


def streams(count: int) -> Iterator[bytes]:
    random = np.random.default_rng(1)
    usual = random.lognormal(11, 1, _OPERATORS)
    names = [(f"model/layer_{i}/conv2d", "Conv2D", f"conv_{i % 7}") for i in range(_OPERATORS)]
    for stream in range(count):
        files = []
        release = release_name(stream // _BOARDS % _RELEASES)
        for number in range(stream * _BATCHES, (stream + 1) * _BATCHES):
            medians = (usual * random.lognormal(0, 0.1, _OPERATORS)).astype(int).tolist()
            rows = (
                OperatorSpread(*name, 256, ns, ns * 11 // 10, ns * 2)
                for name, ns in zip(names, medians, strict=True)
            )
            plain = batch(number)
            subject = replace(plain.subject, release=release)
            one = replace(plain, subject=subject, operators=tuple(rows))
            files.append(batch_bytes(one, SPOOL, number, 0, 0))
        yield b"".join(files)


def release_name(number: int) -> str:
    return f"{number:x}" * 16


def seconds(used: resource.struct_rusage) -> float:
    """CPU seconds."""
    return used.ru_utime + used.ru_stime


def taken() -> float:
    """CPU seconds of this process so far."""
    return seconds(resource.getrusage(resource.RUSAGE_SELF))


def command(home: Path, *arguments: str) -> resource.struct_rusage:
    """The resource usage of a command line."""
    program = "from edgekit.host.cli.main import run; run()"
    environment = {**os.environ, "EDGEKIT_HOME": str(home), "PYTHONPATH": str(_SOURCES)}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=home,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return used


def run(folder: Path, rows: int) -> int:
    store, stored, spent = ProfileStore(folder / "profiles"), 0, 0.0
    for i, stream in enumerate(streams(-(-rows // (_BATCHES * _OPERATORS)))):
        begin = taken()
        stored += store.add(f"board-{i % _BOARDS}", stream).rows
        if i % 20 == 0:
            store.compact()
        spent += taken() - begin
    asked = []
    for _ in range(3):
        begin = taken()
        found = query(store, _MEDIANS, 1000)
        asked.append(taken() - begin)
    assert len(found.rows) == _OPERATORS
    report = command(folder, "profile", "report")
    compare = command(folder, "profile", "compare", release_name(0), release_name(1))
    size = sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())
    rate = stored / spent
    print(
        f"{stored:,} rows stored, {rate:,.0f} in a second of the processor, {size >> 20} MiB; "
        f"medians of each operator in {min(asked):.2f} s of it, a report in {shown(report)}, "
        f"a comparison in {shown(compare)}"
    )
    good = rate >= _LEAST_ROWS_PER_SECOND and min(asked) < _MOST_SECONDS
    good = good and all(
        seconds(used) < _MOST_REPORT_SECONDS and used.ru_maxrss < _MOST_REPORT_KIB
        for used in (report, compare)
    )
    return 0 if stored >= rows and good else 1


def shown(used: resource.struct_rusage) -> str:
    return f"{seconds(used):.1f} s and {used.ru_maxrss >> 10} MiB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), parser.parse_args().rows)


if __name__ == "__main__":
    sys.exit(main())

"""Kills a deploy's apply step at each of its system calls, and fails each with ENOSPC and EIO.

    python -m tests.long.kill_every_syscall [--fault kill|enospc|eio] [--jobs 2] [--call NAME ...]

After each fault the old or the new release must be running intact, and the next deploy must install
the new one. Needs strace, ssh-keygen and edgekit's compiler. Exit code 1 if any release is torn.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from edgekit.host.deploy.bundle import signing_key
from tests.support.faults import EIO, ENOSPC, KILL, Case, Scene, cases, outcome
from tests.support.tiny_bundles import tiny_bundle

_FAULTS = {"kill": KILL, "enospc": ENOSPC, "eio": EIO}


def run(folder: Path, faults: list[str], calls: list[str] | None, jobs: int) -> int:
    key = signing_key(folder / "keys")
    old, new = (tiny_bundle(folder, key, f'TINY_NAME="{name}"') for name in ("old", "new"))
    scene = Scene.build(folder, old, new, key)
    names = frozenset(calls) if calls else None
    todo = list(chain.from_iterable(cases(scene, _FAULTS[f], names) for f in faults))
    print(f"{len(todo)} cases", flush=True)
    left: Counter[str] = Counter()
    wrong: list[str] = []

    def one(numbered: tuple[int, Case]) -> None:
        problem, running = outcome(scene, numbered[1], f"board-{numbered[0]}")
        if problem:
            wrong.append(problem)
            print(problem, flush=True)
        else:
            left[f"{numbered[1].fault}: {running}"] += 1

    with ThreadPoolExecutor(jobs) as pool:
        for done, _ in enumerate(pool.map(one, enumerate(todo)), start=1):
            if done % 100 == 0:
                print(f"{done} done, {len(wrong)} wrong", flush=True)
    print(f"{len(todo)} cases, {len(wrong)} wrong; left running: {dict(sorted(left.items()))}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fault", choices=sorted(_FAULTS), action="append")
    parser.add_argument("--call", action="append", help="only this system call; may be repeated")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    memory = Path("/dev/shm")  # thousands of fsync calls are slow on a disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        os.environ["EDGEKIT_HOME"] = str(Path(folder) / "home")
        return run(Path(folder), arguments.fault or list(_FAULTS), arguments.call, arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())

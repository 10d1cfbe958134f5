"""Flips bits in an installed release's files, and truncates them, at many places.

    python -m tests.long.flip_installed [--places 40] [--seed 16]

Each time the command line's `run`, `status` and `rollback` path must name the file, run nothing of
that release and return to the previous one. Exit code 1 if a damaged release ran or went unnamed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import signing_key
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.errors import EdgekitError, RolledBackError
from tests.support.damages import damages
from tests.support.tiny_bundles import tiny_bundle

_X = np.array([1, 2, 3, -4], np.float32)


def _problem(device: Device, board: Path, damaged: Path, data: bytes, old: str) -> str:
    """Replace `damaged` by `data`; return what goes wrong, empty if nothing."""
    name = str(damaged.relative_to(board / "current"))
    damaged.unlink()  # break the hard link, so that only one release is damaged
    damaged.write_bytes(data)
    try:
        _, timings = device.run({"x": _X})
    except RolledBackError as error:
        if name.rpartition("/")[2] not in str(error):
            return f"{name}: not named: {error}"
        return "" if device.run({"x": _X})[1].release == old else f"{name}: not gone back"
    except EdgekitError as error:
        return f"{name}: not gone back: {error}"
    if name == "installed.json":  # regenerated
        return "" if timings.release != old else f"{name}: gone back"
    return f"{name}: ran"


def run(folder: Path, places: int, seed: int) -> int:
    key = signing_key(folder / "keys")
    store = Store(folder / "template")
    store.create()
    enroll(store, key.public.line)
    device = Device(LocalTransport(store.root))
    old = device.deploy(tiny_bundle(folder, key, 'TINY_NAME="old"')).release.id
    device.deploy(tiny_bundle(folder, key, 'TINY_NAME="new"'))
    wrong, count = [], 0
    for path, data in damages(store.root / "current", places, seed):
        board = folder / "board"
        shutil.copytree(store.root, board, symlinks=True)
        there = board / path.relative_to(store.root)
        if problem := _problem(Device(LocalTransport(board)), board, there, data, old):
            wrong.append(problem)
            print(problem, flush=True)
        shutil.rmtree(board)
        count += 1
    print(f"{count} damages, {len(wrong)} not named or run")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--places", type=int, default=40, help="in each file")
    parser.add_argument("--seed", type=int, default=16)
    arguments = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        os.environ["EDGEKIT_HOME"] = str(Path(folder) / "home")
        return run(Path(folder), arguments.places, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())

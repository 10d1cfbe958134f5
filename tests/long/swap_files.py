"""Replaces a release's library and weights by others, and by links to others, while it is loaded.

    python -m tests.long.swap_files [--loads 3000] [--c]

With --c, a C program loads it through libedgekit-app, anew each time. Each load must give right
outputs or say that the release is damaged. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.application.model import open_model
from edgekit.device.runtime.errors import DeviceError
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import SigningKey, signing_key
from edgekit.host.deploy.transport import LocalTransport
from tests.support.c_application import RIGHT, build_program
from tests.support.tiny_bundles import tiny_bundle

_X = np.array([1, 2, 3, -4], np.float32)
_LONGEST_PAUSE = 0.002


def swap(folder: Path, other: Path) -> None:
    """Replaces files in `folder` by those in `other` and back, for ever."""
    kept = other.with_name("kept")
    shutil.copytree(folder, kept)
    new = other.with_name("new")
    for turn in itertools.count():
        name = (LIBRARY, WEIGHTS)[turn % 2]
        for source in (other, kept):
            if source is other and turn % 4 < 2:
                new.symlink_to(other / name)
            else:
                os.link(source / name, new)
            new.replace(folder / name)
            time.sleep(_LONGEST_PAUSE * (turn % 17) / 16)


def load_in_python(root: Path) -> str:
    """Loads once and tells the end: right, wrong or refused."""
    try:
        with open_model(root=root) as model:
            found = model.run({"x": _X})["y"]
    except DeviceError:
        return "refused"
    return "right" if np.array_equal(found, 2 * _X + 1) else "wrong"


def c_loader(folder: Path) -> Callable[[Path], str]:
    """Like load_in_python, by a C program that is built in `folder`."""
    program = build_program(folder)

    def load(root: Path) -> str:
        done = subprocess.run([program, root, "run"], capture_output=True, text=True)
        if done.returncode == 1 and " is damaged: " in done.stdout:
            return "refused"
        return "right" if done.returncode == 0 and done.stdout.endswith(f" {RIGHT}\n") else "wrong"

    return load


def attack(folder: Path, key: SigningKey, loads: int, load: Callable[[Path], str]) -> Counter[str]:
    """How the loads ended."""
    store = Store(folder / "board")
    store.create()
    enroll(store, key.public.line)
    good, evil = tiny_bundle(folder, key), tiny_bundle(folder, key, "TINY_WRONG")
    Device(LocalTransport(store.root)).deploy(good)
    other = folder / "other"
    other.mkdir()
    (other / LIBRARY).write_bytes(evil.files[LIBRARY])
    (other / WEIGHTS).write_bytes(bytes(len(good.files[WEIGHTS])))
    target = store.releases / good.manifest.id
    swapper = multiprocessing.get_context("fork").Process(target=swap, args=(target, other))
    swapper.start()
    ends: Counter[str] = Counter()
    try:
        for _ in range(loads):
            ends[load(store.root)] += 1
    finally:
        swapper.kill()
        swapper.join()
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", type=int, default=3000)
    parser.add_argument("--c", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["EDGEKIT_HOME"] = str(Path(name) / "home")
        load = c_loader(Path(name)) if arguments.c else load_in_python
        ends = attack(Path(name), signing_key(Path(name) / "keys"), arguments.loads, load)
    print(
        f"{arguments.loads} loads, {ends['wrong']} wrong: {ends['right']} right, "
        f"{ends['refused']} refused"
    )
    return 1 if ends["wrong"] or not ends["right"] or not ends["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Four threads run a model while its release changes under them; every result is checked.

    python -m tests.long.hot_changes [--inferences 1000000] [--changes 200]

Exit code 1 if any result does not match the release it reports, or any change was not picked up.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from edgekit.device.runtime import application
from edgekit.device.runtime.agent.release import rollback
from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import signing_key
from edgekit.host.deploy.transport import LocalTransport
from tests.support.tiny_bundles import tiny_bundle

_THREADS = 4


def run(folder: Path, inferences: int, changes: int) -> int:
    """Alternate between two releases that differ in code and results."""
    key, store = signing_key(folder / "keys"), Store(folder / "board")
    store.create()
    enroll(store, key.public.line)
    device = Device(LocalTransport(store.root))
    x = np.array([1, 2, 3, -4], np.float32)
    expected = {}
    for n in (0, 1):
        options = ('TINY_NAME="other"', "TINY_STATE") if n else ()
        release = device.deploy(tiny_bundle(folder, key, *options)).release
        expected[release.id] = n
    counts, wrong, stop = [0] * _THREADS, [0] * _THREADS, threading.Event()

    def work(number: int, model: application.Model) -> None:
        mine = x * (number + 1)
        while not stop.is_set():
            found = model.run({"x": mine})
            extra = found["y"] - (2 * mine + 1)  # for the stateful release, the number of runs
            counted = extra[0] >= 1 and bool((extra == extra[0]).all())
            right = counted if expected[found.release] else not extra.any()
            counts[number] += 1
            wrong[number] += not right

    missed, start = 0, time.monotonic()
    with application.open(root=store.root, parallel=_THREADS) as model:
        threads = [threading.Thread(target=work, args=(i, model)) for i in range(_THREADS)]
        for thread in threads:
            thread.start()
        for i in range(changes):
            while sum(counts) < inferences * i // changes:
                time.sleep(0.01)
            current = rollback(store).release
            model.refresh()
            missed += model.run({"x": x}).release != current
        while sum(counts) < inferences:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
    seconds = time.monotonic() - start
    print(
        f"{sum(counts)} inferences in {_THREADS} threads over {changes} changes of release in "
        f"{seconds:.0f} s: {sum(wrong)} wrong, {missed} changes missed"
    )
    return 1 if sum(wrong) or missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferences", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), options.inferences, options.changes)


if __name__ == "__main__":
    sys.exit(main())

"""Rolls out one release to a thousand simulated boards and measures the time and the host's cost.

python -m tests.long.rollout_size --boards 1000
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import signing_key
from edgekit.host.fleet import Silent
from edgekit.host.fleet.executor import RolloutHost, RolloutPace, carry_out
from edgekit.host.fleet.rollout import Policy
from edgekit.host.fleet.start import open_rollout
from tests.support.board_farm import running_farm
from tests.support.tiny_bundles import tiny_bundle

_MOST_SECONDS, _MOST_BYTES = 300.0, 1e9


@dataclass(frozen=True)
class Cost:
    """Wall-clock seconds, CPU seconds of this host and of all processes, and this host's memory
    bytes."""

    seconds: float
    host_cpu: float
    cpu: float
    bytes: float


def roll_out(folder: Path, count: int) -> Cost:
    """Roll out; raises AssertionError unless every board got the release exactly once."""
    key = signing_key(folder / "home" / "keys")
    bundle = tiny_bundle(folder, key)
    file = folder / "release.ekb"
    bundle.write(file)
    with running_farm(folder / "farm", count) as farm:
        for board in farm.boards:
            store = Store(board.root)
            store.create()
            enroll(store, key.public.line)
        before = farm.cpu_seconds()
        began, cpu = time.monotonic(), time.process_time()
        with closing(open_rollout(file, farm.entries(), lambda _: bundle, settings={})) as journal:
            home = RolloutHost(
                lambda *_: nullcontext(Silent()), lambda text: print(text, flush=True)
            )
            carry_out(journal, farm.entries(), Policy(), RolloutPace(pause=0), home)
            done = len(journal.progress.names("done"))
        seconds, host_cpu = time.monotonic() - began, time.process_time() - cpu
        boards_cpu = farm.cpu_seconds() - before
        release = bundle.manifest.id
        assert done == count, f"{done} of {count} boards"
        for board in farm.boards:
            assert board.applied() == [f"committed {release}"], f"{board.name}: {board.applied()}"
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Cost(seconds, host_cpu, host_cpu + boards_cpu, size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["EDGEKIT_HOME"] = str(Path(name) / "home")
        cost = roll_out(Path(name), options.boards)
    load = os.getloadavg()[0]
    print(
        f"{options.boards} boards: {cost.seconds:.0f} s (load {load:.0f}), {cost.host_cpu:.0f} s "
        f"of CPU here, {cost.cpu:.0f} s with the boards', {cost.bytes / 1e6:.0f} MB"
    )
    limit = _MOST_SECONDS * options.boards / 1000
    return int(cost.cpu / (os.cpu_count() or 1) > limit or cost.bytes > _MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())

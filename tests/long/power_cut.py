"""Cuts the power of a virtual board at random moments of deploys: no running release may be torn.

    python -m tests.long.power_cut [--cuts 50] [--board a57] [--seed 0]

The board's disk has a volatile write cache: of the unflushed writes a random part survives a cut.
After each cut the board is restarted on the same disk; it must run the old or the new release
intact, and deploys continue from there, every fifth to completion. Half of the cuts come anywhere
in a deploy, half while the board verifies, extracts and switches.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.device.runtime.agent import states
from edgekit.host.deploy.api import Device, connect
from edgekit.host.deploy.bundle import Bundle, host_key
from edgekit.host.deploy.release import DeployProgress
from edgekit.host.errors import EdgekitError
from edgekit.host.virtual import BoardOptions, down, find_running, up
from tests.support.nbd import VolatileDisk
from tests.support.tiny_bundles import tiny_bundle
from tests.support.torn import look

_CONVERGE_EVERY = 5  # cuts; interrupted deploys also continue from the state after the last cut


@dataclass
class PowerCuts:
    board: str
    disk: VolatileDisk
    bundles: tuple[Bundle, Bundle]
    rng: random.Random
    seconds: Counter[str] = field(default_factory=Counter)  # of deploys, and of their applies
    left: Counter[str] = field(default_factory=Counter)

    def run(self, cuts: int) -> list[str]:
        """All problems found, one line each."""
        wrong = []
        device = self.start()
        old, new = self.bundles
        self.whole_deploy(device, old)
        for number in range(cuts):
            moment = self.cut(device, new)
            device = self.start()
            problem, running = self.check(device, old, new)
            if problem:
                wrong.append(f"cut {number} ({moment}): {problem}")
            print(f"cut {number}: {moment}: {problem or running}", flush=True)
            if running != "old":
                old, new = new, old
            if number % _CONVERGE_EVERY == 0 or number == cuts - 1:
                try:
                    self.whole_deploy(device, new)
                except EdgekitError as error:
                    return [*wrong, f"cut {number} ({moment}): does not converge: {error}"]
                old, new = new, old
        device.transport.close()
        return wrong

    def start(self) -> Device:
        self.disk.plug_in()
        up(self.board, options=BoardOptions(disk=self.disk.url))
        return connect(self.board)

    def whole_deploy(self, device: Device, bundle: Bundle) -> None:
        began = {}

        def on_step(step: DeployProgress) -> None:
            began.setdefault(step.state, time.monotonic())

        begin = time.monotonic()
        device.deploy(bundle, progress=on_step)
        self.seconds["deploy"] = int((time.monotonic() - begin) * 1e3)
        if states.ON_BOARD[0] in began:
            apply = time.monotonic() - began[states.ON_BOARD[0]]
            self.seconds["apply"] = int(apply * 1e3)
        if look(device.transport).torn(bundle.manifest.id):
            raise EdgekitError(look(device.transport).torn(bundle.manifest.id))

    def cut(self, device: Device, bundle: Bundle) -> str:
        """Deploy and cut the power meanwhile; return the moment of the cut."""
        first = self.rng.choice(("probe", states.ON_BOARD[0]))
        span = self.seconds["deploy" if first == "probe" else "apply"] / 1e3
        delay = self.rng.uniform(0, span * 1.05)
        reached, state = threading.Event(), ["connect"]

        def on_step(step: DeployProgress) -> None:
            state[0] = step.state
            if step.state == first:
                reached.set()

        def deploy() -> None:
            try:
                device.deploy(bundle, progress=on_step)
                state[0] = "the end"
            except EdgekitError as error:
                state.append(str(error))
            reached.set()

        thread = threading.Thread(target=deploy)
        thread.start()
        reached.wait()
        time.sleep(delay)
        running = find_running(self.board)
        assert running is not None
        running.kill()
        self.disk.cut(self.rng)
        moment = f"{delay:.2f} s after {first}, in {state[0]}"
        device.transport.close()
        thread.join()
        return moment

    def check(self, device: Device, old: Bundle, new: Bundle) -> tuple[str, str]:
        """What is wrong, and which release runs after recovery."""
        whole = (old.manifest.id, new.manifest.id)
        found = look(device.transport)
        if problem := found.torn(*whole):
            return f"torn: {problem}", ""
        status = device.status()
        after = look(device.transport)
        if problem := after.torn(*whole):
            return f"torn after recovery: {problem}", ""
        if status.interrupted or after.pending:
            return "the interrupted switch was not undone", ""
        self.left["an uncommitted switch" if found.pending else "no switch"] += 1
        running = "new" if after.current == whole[1] else "old"
        self.left[running] += 1
        return "", running


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--board", default="a57", choices=("a57", "a53", "a72"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if find_running(arguments.board) is not None:
        print(f"power_cut: expected {arguments.board} to be down, found it up")
        return 2
    with tempfile.TemporaryDirectory(prefix="cuts-") as text:
        folder = Path(text)
        up(arguments.board, options=BoardOptions(disk=str(folder / "disk")))
        down(arguments.board)
        disk = VolatileDisk(folder / "disk", folder / "nbd")
        bundles = tuple(
            tiny_bundle(folder, host_key(), f'TINY_NAME="{name}"', board=arguments.board)
            for name in ("one", "two")
        )
        cuts = PowerCuts(
            arguments.board, disk, (bundles[0], bundles[1]), random.Random(arguments.seed)
        )
        try:
            wrong = cuts.run(arguments.cuts)
        finally:
            down(arguments.board)
            disk.close()
    print(
        f"{arguments.cuts} cuts, {len(wrong)} wrong; left running: {dict(cuts.left)}; "
        f"sectors written but not flushed: {disk.kept_sectors} kept, {disk.lost_sectors} lost"
    )
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

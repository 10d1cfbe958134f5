"""Two hosts roll different releases out to the same boards at once; some of them are killed.

    python -m tests.long.two_hosts [--boards 12] [--rounds 20]

Afterwards each board must be intact and run one of the releases, and a further rollout by one of
the hosts must reach all boards.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.status import status
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import signing_key
from edgekit.host.deploy.inventory import add_boards
from tests.support.board_farm import Farm, running_farm
from tests.support.tiny_bundles import tiny_bundle

_PATIENCE = 300.0


def _start(folder: Path, home: str, file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.long.kill_rollouts", "--life", str(folder)]
    return subprocess.Popen(
        [*command, "--bundle", str(file), "--anew"],
        env={**os.environ, "EDGEKIT_HOME": str(folder / home)},
        stderr=subprocess.PIPE,
        text=True,
    )


def _torn(farm: Farm, releases: set[str]) -> list[str]:
    problems = []
    for board in farm.boards:
        found = status(Store(board.root))
        if found.current is None or found.current.damage or found.interrupted:
            problems.append(f"{board.root}: {found}")
        elif found.current.id not in releases:
            problems.append(f"{board.root}: {found.current.id} runs")
    return problems


def compete(farm: Farm, folder: Path, rounds: int, seed: int) -> tuple[int, list[str]]:
    """Number of killed hosts, and what is wrong."""
    chance, killed, wrong = random.Random(seed), 0, list[str]()
    homes = ("one", "two")
    keys = {home: signing_key(folder / home / "keys") for home in homes}
    for board in farm.boards:
        store = Store(board.root)
        store.create()
        for key in keys.values():
            enroll(store, key.public.line)
    add_boards(farm.entries(), folder / "edgekit.toml")
    releases: set[str] = set()
    for number in range(rounds):
        ids = dict[str, str]()
        files = {home: folder / f"{home}{number}.ekb" for home in homes}
        for home, file in files.items():
            bundle = tiny_bundle(folder, keys[home], f'TINY_NAME="{home}{number}"')
            bundle.write(file)
            ids[home] = bundle.manifest.id
        releases.update(ids.values())
        both = [_start(folder, home, file) for home, file in files.items()]
        if number % 2:
            time.sleep(chance.uniform(1, 12))
            both[number % 4 == 1].kill()
            killed += 1
        for one in both:
            one.communicate(timeout=_PATIENCE)
        print(f"round {number}: {[one.returncode for one in both]}", flush=True)
        last = homes[number % 4 == 1]
        wrong += _torn(farm, releases)
        again = _start(folder, last, files[last])
        said = again.communicate(timeout=_PATIENCE)[1]
        if again.returncode:
            wrong.append(f"round {number}: exit code {again.returncode}, {said[-300:]}")
        wrong += _torn(farm, {ids[last]})
    return killed, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--boards", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["EDGEKIT_HOME"] = str(folder / "one")
        with running_farm(folder / "farm", options.boards) as farm:
            killed, wrong = compete(farm, folder, options.rounds, options.seed)
    for line in wrong:
        print(line)
    print(f"{options.rounds} rounds of two hosts, {killed} killed, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

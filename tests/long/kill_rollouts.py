"""Kills rollouts to simulated boards at random moments and resumes them.

Each attempt of the host is a separate process that gets SIGKILL after a random time, until one
completes; then the next release follows. In the end every board must be intact, run the last
release, and have applied each release once.

    python -m tests.long.kill_rollouts --boards 40 --kills 50
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import closing, nullcontext
from pathlib import Path

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.status import status
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import Bundle, signing_key
from edgekit.host.deploy.inventory import BoardEntry, add_boards, boards
from edgekit.host.fleet import Silent
from edgekit.host.fleet.executor import RolloutHost, RolloutPace, carry_out
from edgekit.host.fleet.rollout import Policy
from edgekit.host.fleet.start import open_rollout
from tests.support.board_farm import Farm, running_farm
from tests.support.tiny_bundles import tiny_bundle

_LEAST_SECONDS = 0.5
_MOST_SECONDS = 120.0


def one_life(folder: Path, file: Path, anew: bool) -> int:
    """Start or resume the rollout of `file` to the boards in `folder`; 0 if it reached all. With
    `anew`, an interrupted one of another file is abandoned."""
    entries = boards(folder)
    bundle = Bundle.read(file)

    def make(_: BoardEntry) -> Bundle:
        return bundle

    with closing(open_rollout(file, entries, make, settings={}, restart=anew)) as journal:
        home = RolloutHost(lambda *_: nullcontext(Silent()), lambda _: None)
        carry_out(journal, entries, Policy(), RolloutPace(pause=0), home)
        return int(len(journal.progress.names("done")) < len(entries))


def kill_and_resume(farm: Farm, folder: Path, kills: int, seed: int) -> tuple[int, int]:
    """Number of killed attempts, and of releases. Raises AssertionError if a board is not
    intact."""
    chance = random.Random(seed)
    key = signing_key(folder / "home" / "keys")
    for board in farm.boards:
        store = Store(board.root)
        store.create()
        enroll(store, key.public.line)
    add_boards(farm.entries(), folder / "edgekit.toml")
    killed, releases, took = 0, [], 20.0
    while killed < kills:
        bundle = tiny_bundle(folder, key, f'TINY_NAME="r{len(releases)}"')
        file = folder / f"r{len(releases)}.ekb"
        bundle.write(file)
        releases.append(bundle.manifest.id)
        lived = 0.0
        while True:
            patience = chance.uniform(_LEAST_SECONDS, took) if killed < kills else _MOST_SECONDS
            began = time.monotonic()
            ended = _live(folder, file, patience)
            lived += time.monotonic() - began
            if ended is not None:
                assert ended == 0, f"release {len(releases)}: exit code {ended}"
                break
            killed += killed < kills
            print(f"killed {killed} times, release {len(releases)}", flush=True)
        took = max(lived / 3, 2 * _LEAST_SECONDS)
    for board in farm.boards:
        check_board(board.root, board.applied(), releases)
    return killed, len(releases)


def check_board(root: Path, applied: list[str], releases: list[str]) -> None:
    """Check that the board is intact, runs the last release, and activated none twice."""
    found = status(Store(root))
    assert found.current is not None, f"{root}: nothing runs"
    assert found.current.id == releases[-1], f"{root}: {found.current.id} runs"
    assert not found.current.damage, f"{root}: {found.current.damage}"
    assert not found.interrupted, f"{root}: interrupted"
    committed = [line for line in applied if line.startswith("committed ")]
    assert committed == [f"committed {one}" for one in releases], f"{root}: {applied}"


def _live(folder: Path, file: Path, seconds: float) -> int | None:
    """Exit code of one host attempt, or None if it was killed after `seconds`."""
    command = [sys.executable, "-m", "tests.long.kill_rollouts"]
    life = subprocess.Popen([*command, "--life", str(folder), "--bundle", str(file)])
    try:
        return life.wait(seconds)
    except subprocess.TimeoutExpired:
        life.kill()
        life.wait()
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=40)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--life", type=Path)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--anew", action="store_true")
    options = parser.parse_args()
    if options.life:
        return one_life(options.life, options.bundle, options.anew)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["EDGEKIT_HOME"] = str(folder / "home")
        with running_farm(folder / "farm", options.boards) as farm:
            killed, releases = kill_and_resume(farm, folder, options.kills, options.seed)
    print(
        f"{killed} kills over {releases} releases to {options.boards} boards: all whole, none twice"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

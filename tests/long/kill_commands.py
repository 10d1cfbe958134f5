"""Kills deploy, rollback, run and verify at random moments: the host, the board, or both.

    python -m tests.long.kill_commands [--kills 1000] [--jobs 2] [--seed 16]

After each kill the old or the new release must be running intact, the same command must work
immediately, and two more deploys must clean up all leftovers. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, signing_key
from edgekit.host.deploy.transport import LocalTransport
from tests.support.tiny_bundles import tiny_bundle
from tests.support.torn import Found, look_in

_X = np.array([1, 2, 3, -4], np.float32)
_WHO = ("host", "board", "both")
_KEPT = frozenset(
    ("current", "previous", "releases", "incoming", "runtime", "io", "temporary", "session", "lock",
     "trusted_keys", "leftovers.json", "counters.json", "bytecode")
)  # fmt: skip
_TIDY_EVERY = 10


@dataclass(frozen=True)
class _Action:
    """A command, and the release it activates, if any."""

    name: str
    act: Callable[[], None]
    makes: str | None


@dataclass(frozen=True)
class _Board:
    root: Path
    bundles: tuple[Bundle, ...]

    @property
    def device(self) -> Device:
        return Device(LocalTransport(self.root))

    def action(self, found: Found, chosen: random.Random) -> _Action:
        """Choose a command that is possible in this state."""
        new = chosen.choice([b for b in self.bundles if b.manifest.id != found.current])
        every = (
            _Action("deploy", lambda: _ignore(self.device.deploy(new)), new.manifest.id),
            _Action("rollback", lambda: _ignore(self.device.rollback()), found.previous),
            _Action("run", self._run, None),
            _Action("verify", lambda: _ignore(self.device.verify()), None),
        )
        return chosen.choice(every)

    def _run(self) -> None:
        np.testing.assert_array_equal(self.device.run({"x": _X})[0]["y"], 2 * _X + 1)

    def leftovers(self) -> list[str]:
        """Files that two consecutive deploys failed to clean up."""
        found = look_in(self.root)
        others = [b for b in self.bundles if b.manifest.id not in (found.current, found.previous)]
        for bundle in (others[0], next(b for b in self.bundles if b is not others[0])):
            self.device.deploy(bundle)
        named = {(self.root / name).readlink().name for name in ("current", "previous")}
        left = [p for p in self.root.iterdir() if p.name not in _KEPT]
        left += [p for p in (self.root / "releases").iterdir() if p.name not in named]
        for area in ("incoming", "io", "temporary"):
            left += (self.root / area).glob("*")
        left += self.root.rglob(".*")
        left += list((self.root / "runtime").iterdir())[1:]
        return [str(path.relative_to(self.root)) for path in left]


def _ignore(_: object) -> None:
    """The state of the board is the outcome."""


def _in_child(act: Callable[[], None]) -> int:
    """Run `act` in a separate process, which exits with 0 on success."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 2)
        code = 1
        with contextlib.suppress(BaseException):
            act()
            code = 0
        os._exit(code)
    return child


def _on_board(root: Path) -> list[int]:
    """Processes whose working directory is the board's."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == root:
                found.append(int(process.name))
    return found


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _one(board: _Board, chosen: random.Random, seconds: dict[str, float]) -> str:
    """Kill once; return what is wrong afterwards, empty if nothing."""
    before = look_in(board.root)
    action = board.action(before, chosen)
    name, act = action.name, action.act
    who = chosen.choice(_WHO)
    begin = time.monotonic()
    child = _in_child(act)
    time.sleep(chosen.uniform(0, seconds.get(name, 0.5)))
    if who != "board":
        _kill([child])
    if who != "host":
        _kill(_on_board(board.root))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:  # it finished before the kill
        seconds[name] = 0.7 * seconds.get(name, 0.5) + 0.3 * (time.monotonic() - begin)
    else:
        seconds[name] = 1.02 * seconds.get(name, 0.5)
    what = f"{name}, {who} killed"
    after = look_in(board.root)
    if wrong := after.torn(*(i for i in (before.current, action.makes) if i)):
        return f"{what}: torn: {wrong}"
    try:
        act()
    except Exception as error:
        return f"{what}: not at once again: {error}"
    end = look_in(board.root)
    return f"{what}: ended with {end}" if end.problems or end.pending else ""


def _many(folder: Path, key: SigningKey, bundles: tuple[Bundle, ...], kills: int, seed: int) -> int:
    """Run `kills` kills on a separate board; the exit code is the number of failures."""
    os.environ["EDGEKIT_HOME"] = str(folder / "home")
    store = Store(folder / "board")
    store.create()
    enroll(store, key.public.line)
    board, chosen = _Board(store.root.resolve(), bundles), random.Random(seed)
    for bundle in bundles[:2]:
        board.device.deploy(bundle)
    seconds: dict[str, float] = {}
    wrong = 0
    for k in range(1, kills + 1):
        problem = _one(board, chosen, seconds)
        if not problem and (k % _TIDY_EVERY == 0 or k == kills):
            left = board.leftovers()
            problem = f"after kill {k}: left {left}" if left else ""
        if problem:
            wrong += 1
            print(problem, flush=True)
        if k % 50 == 0:
            print(f"{k} of {kills} done, {wrong} wrong", flush=True)
    return min(wrong, 255)


def run(folder: Path, kills: int, jobs: int, seed: int) -> int:
    key = signing_key(folder / "keys")
    bundles = tuple(tiny_bundle(folder, key, f'TINY_NAME="{name}"') for name in "abc")
    context = multiprocessing.get_context("fork")
    workers = []
    for job in range(jobs):
        part = folder / f"job-{job}"
        part.mkdir()
        share = kills // jobs + (job < kills % jobs)
        arguments = (part, key, bundles, share, seed + job)
        workers.append(context.Process(target=lambda a=arguments: sys.exit(_many(*a))))
        workers[-1].start()
    for worker in workers:
        worker.join()
    wrong = sum(worker.exitcode or 0 for worker in workers)
    print(f"{kills} kills, {wrong} torn, to be tried again, or with something left")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=16)
    arguments = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        os.environ["EDGEKIT_HOME"] = str(Path(folder) / "home")
        return run(Path(folder), arguments.kills, arguments.jobs, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())

"""A thousand boards fetch a release; and servers and boards are killed while releases change.

    python -m tests.long.fetch_at_scale [--boards 1000] [--kills 200] [--seed 1]

The server is a process of `edgekit fleet serve`; boards are processes with the agent's own
code and folders. First all boards fetch one release, and the server's CPU time is counted (at most
180 s for 1,000). Then a few boards fetch release after release; servers and boards get SIGKILL at
random moments. Exit code 1 if a board has a torn, lost or wrong release.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgekit.device.runtime.agent.fetch import FetchSettings, fetch, settings_bytes
from edgekit.device.runtime.agent.integrity import find_damage
from edgekit.device.runtime.agent.push import Bandwidth, LaterError, PushTarget
from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import Bundle, sign_bundle, signing_key
from edgekit.host.fleet.profiles import ProfileStore
from edgekit.host.fleet.profiles.server import certificate_of, tokens_of
from edgekit.host.fleet.updates import Offered, OwnerKeys, ReleaseFolder
from tests.support.profile_servers import end_server, start_server
from tests.support.tiny_bundles import tiny_artifact, tiny_bundle, with_weights

Weights = npt.NDArray[np.int8]

_FAST, _SLOW = 1 << 40, 4_000_000  # bits per second
_WEIGHTS = 1 << 18  # bytes, of releases that differ in them; deltas take most of the time
_AT_ONCE = 16
_FEW = 6
_MOST_SERVER_SECONDS = 180.0  # of CPU, for 1,000 boards
_SERVER_KILLS = 0.25  # of all
_LAST_SECONDS = 600.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class _Board:
    store: Store
    home: PushTarget

    def poll(self, port: int, rate: int = _FAST) -> None:
        """One poll. The health check is left out: this suite does not test the model."""
        home = replace(self.home, port=port)
        fetch(self.store, home, Bandwidth(rate), lambda _: {"ok": True})


@dataclass(frozen=True)
class _Place:
    """A host's folder, with releases and boards."""

    folder: Path
    releases: ReleaseFolder
    owner: OwnerKeys
    boards: tuple[_Board, ...]

    def offer(self, bundle: Bundle, rollout: str) -> None:
        names = tuple(board.home.board for board in self.boards)
        self.releases.offer(self.owner, [bundle], [Offered(bundle.manifest.id, "", rollout, names)])


def enroll_boards(folder: Path, count: int) -> _Place:
    store = ProfileStore(folder / "profiles")
    key = signing_key(folder / "keys")
    owner = OwnerKeys((signing_key(folder / "root-key"),), (key,))
    releases = ReleaseFolder(folder / "releases")
    releases.create(owner)
    fingerprint = certificate_of(store)[1]
    boards = []
    for number in range(count):
        name = f"sim{number:04d}"
        board = Store(folder / "boards" / name)
        board.create()
        enroll(board, key.public.line)
        fetching = board.root / "fetch"
        fetching.mkdir()
        (fetching / "root.json").write_bytes(releases.root())
        (fetching / "settings.json").write_bytes(settings_bytes(FetchSettings(_FAST, 600)))
        token = tokens_of(store).issue(name)
        boards.append(_Board(board, PushTarget("127.0.0.1", 1, name, token, fingerprint, _FAST)))
    return _Place(folder, releases, owner, tuple(boards))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def fetch_by_all(folder: Path, count: int) -> bool:
    """All boards fetch one release; prints what that cost the server."""
    place = enroll_boards(folder, count)
    bundle = tiny_bundle(folder, place.owner.targets[0])
    place.offer(bundle, "all")
    server, port = start_server(folder, "--releases", str(place.releases.path))
    try:
        before, begin = cpu_seconds(server.pid), time.monotonic()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            polls = [pool.submit(_until_heard, board, port) for board in place.boards]
            retries = sum(poll.result() for poll in polls)
        used, seconds = cpu_seconds(server.pid) - before, time.monotonic() - begin
    finally:
        end_server(server)
    right = sum(b.store.links().current == bundle.manifest.id for b in place.boards)
    reported = sum(len(one) for one in place.releases.all_reports().values())
    size = sum(map(len, bundle.files.values()))
    print(
        f"{count} boards: {right} run the release of {size} bytes, {reported} reported; server "
        f"{used:.1f} s of CPU; {seconds:.0f} s in all; {retries} polls again",
        flush=True,
    )
    return right == reported == count and used <= max(1.0, _MOST_SERVER_SECONDS * count / 1000)


def _until_heard(board: _Board, port: int) -> int:
    """Polls until it succeeds; returns how often it did not."""
    for failures in range(1000):
        try:
            board.poll(port)
            return failures
        except LaterError as later:
            time.sleep(min(later.seconds, 1.0))
    raise AssertionError(f"{board.home.board}: no poll succeeds")


class _Fleet:
    """Boards that poll in processes of their own, over successive servers."""

    def __init__(self, place: _Place, chance: random.Random) -> None:
        self.place, self.chance = place, chance
        self.polls: dict[int, _Board] = {}
        self.kills = 0
        self._serve()

    def _serve(self) -> None:
        self.server, self.port = start_server(
            self.place.folder, "--releases", str(self.place.releases.path)
        )

    def start_polls(self) -> None:
        """Lets each idle board begin a poll."""
        self.reap()
        busy = {board.home.board for board in self.polls.values()}
        for board in self.place.boards:
            if board.home.board not in busy:
                pid = os.fork()
                if pid == 0:
                    with contextlib.suppress(BaseException):
                        board.poll(self.port, _SLOW)
                    os._exit(0)
                self.polls[pid] = board

    def poll_all(self) -> None:
        """Lets every board poll to the end."""
        self.start_polls()
        self.reap(wait=True)

    def ended_within(self, seconds: float) -> float | None:
        """Waits; after how many seconds all polls had ended, None if one goes on."""
        begin = time.monotonic()
        while self.polls and time.monotonic() - begin < seconds:
            time.sleep(_LOOK_SECONDS)
            self.reap()
        return None if self.polls else time.monotonic() - begin

    def reap(self, wait: bool = False) -> None:
        for pid in list(self.polls):
            if os.waitpid(pid, 0 if wait else os.WNOHANG)[0]:
                del self.polls[pid]

    def kill(self) -> None:
        """Kills the server or one of the boards that poll."""
        if self.chance.random() < _SERVER_KILLS:
            end_server(self.server)
            self._serve()
        else:
            os.kill(self.chance.choice(list(self.polls)), signal.SIGKILL)
        self.kills += 1

    def torn(self, known: Sequence[str]) -> list[str]:
        """What is wrong with the releases that boards would run now."""
        found = ((board.home.board, _torn(board.store, known)) for board in self.place.boards)
        return [f"{name}: {why}" for name, why in found if why]


def _torn(store: Store, known: Sequence[str]) -> str:
    current = store.links().current
    if current is None:
        return ""
    if current not in known:
        return f"{current} was never offered"
    why = find_damage(store.releases / current, full=True)
    # A poll may replace and remove the release meanwhile.
    return why if why and store.links().current == current else ""


@contextlib.contextmanager
def running_fleet(place: _Place, chance: random.Random) -> Iterator[_Fleet]:
    fleet = _Fleet(place, chance)
    try:
        yield fleet
    finally:
        for pid in fleet.polls:
            os.kill(pid, signal.SIGKILL)
        fleet.reap(wait=True)
        end_server(fleet.server)


def kill_all(folder: Path, kills: int, seed: int) -> bool:
    """Kills servers and boards; prints what that did to the boards' releases."""
    chance = random.Random(seed)
    place = enroll_boards(folder, _FEW)
    owner = place.owner.targets[0]
    tiny = tiny_artifact(folder, f'TINY_WEIGHTS="{_WEIGHTS}"')
    weights = np.frombuffer(chance.randbytes(_WEIGHTS), np.int8)
    saved: dict[tuple[str, str], int] = {}  # bytes by board and rollout
    known: list[str] = []
    problems: list[str] = []
    latest = 1.0  # seconds of a poll after which a kill comes; how long polls take varies
    with running_fleet(place, chance) as fleet:
        while fleet.kills < kills:
            weights = _retrained(weights, chance)
            bundle = sign_bundle(with_weights(tiny, weights.tobytes(), len(known)), owner)
            known.append(bundle.manifest.id)
            place.offer(bundle, f"rollout-{len(known)}")
            while fleet.kills < kills:
                fleet.start_polls()
                if ended := fleet.ended_within(chance.uniform(0, latest)):
                    latest = ended
                    break  # boards have the release: a kill would meet nothing
                latest *= 1.1
                fleet.kill()
                problems += fleet.torn(known)
                saved |= _saved(place)
        ends = time.monotonic() + _LAST_SECONDS
        while time.monotonic() < ends:
            fleet.poll_all()
            if not (late := [b for b in place.boards if b.store.links().current != known[-1]]):
                break
        problems += fleet.torn(known)
    saved |= _saved(place)
    lost = [b for b in place.boards if b.store.links().current is None]
    unreported = [
        board.home.board
        for board in place.boards
        if place.releases.reports(board.home.board)[""].current != known[-1]
    ]
    for line in (*problems, *(f"{name}: reported something else" for name in unreported)):
        print(line)
    print(
        f"{fleet.kills} kills, {len(known)} releases, {_FEW} boards: {len(problems)} torn, "
        f"{len(lost)} lost, {len(late) + len(unreported)} wrong; deltas saved "
        f"{sum(saved.values())} bytes in {sum(map(bool, saved.values()))} of {len(saved)} fetches",
        flush=True,
    )
    return any(saved.values()) and not (problems or lost or late or unreported)


def _retrained(weights: Weights, chance: random.Random) -> Weights:
    """Weights of which each changed a little, or every fourth time others."""
    rng = np.random.default_rng(chance.randrange(1 << 32))
    if chance.random() < 0.25:
        return rng.integers(-128, 128, weights.size).astype(np.int8)
    return np.clip(weights + np.rint(rng.normal(0, 1, weights.size)), -128, 127).astype(np.int8)


def _saved(place: _Place) -> dict[tuple[str, str], int]:
    """What boards have reported to have saved by deltas, by board and rollout."""
    found = place.releases.all_reports().items()
    return {(name, one.rollout): one.saved_bytes for name, of in found for one in of.values()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--boards", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        right = not options.boards or fetch_by_all(Path(folder, "many"), options.boards)
        right &= not options.kills or kill_all(Path(folder, "few"), options.kills, options.seed)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

"""A server of releases on a loopback port, and a board in a folder that fetches from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgekit.device.runtime.agent.fetch import Ended, FetchSettings, fetch
from edgekit.device.runtime.agent.health import check_in_subprocess
from edgekit.device.runtime.agent.push import Bandwidth, PushTarget
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, signing_key
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore, enroll
from edgekit.host.fleet.updates import Offered, OwnerKeys, ReleaseFolder, enroll_to_fetch
from edgekit.host.fleet.updates.metadata import read_signed, sign
from tests.support.patience import AMPLE
from tests.support.profile_servers import serving

FAST = 1 << 32  # bits per second
NAME = "x"
BEGIN = 1_800_000_000.0  # January 2027


@dataclass
class Clock:
    """The time of server and boards, in seconds since 1970."""

    now: float = BEGIN

    def __call__(self) -> float:
        return self.now


@dataclass
class Fetching:
    """A folder of releases with its owner's keys, its server, and board `x`."""

    server: ProfileServer
    folder: ReleaseFolder
    owner: OwnerKeys
    store: Store
    home: PushTarget
    clock: Clock
    rollouts: int = field(default=0)

    def offer(self, *bundles: Bundle, back: bool = False, boards: Sequence[str] = (NAME,)) -> str:
        """Offers releases to boards in a new rollout, whose id it returns."""
        self.rollouts += 1
        rollout = f"rollout-{self.rollouts}"
        self.folder.offer(
            self.owner,
            bundles,
            [Offered(b.manifest.id, "", rollout, tuple(boards), back) for b in bundles],
        )
        return rollout

    def poll(
        self,
        port: int = 0,
        clock: Callable[[], float] | None = None,
        bandwidth: Bandwidth | None = None,
    ) -> list[Ended]:
        """What the board does at its interval."""
        home = replace(self.home, port=port or self.home.port)
        return fetch(
            self.store,
            home,
            bandwidth or Bandwidth(FAST),
            lambda folder: check_in_subprocess(folder, AMPLE),
            clock=clock or self.clock,
        )

    def forget_runtime(self) -> None:
        """Removes what the enrollment sent, so that the board must download a runtime."""
        shutil.rmtree(self.store.root / "runtime")

    @property
    def current(self) -> str | None:
        return self.store.links().current


def owner_keys(folder: Path, *names: str, needed: int = 1) -> OwnerKeys:
    """Keys of an owner in a folder; several root keys have these names."""
    root = tuple(signing_key(folder / name) for name in names or ("root",))
    return OwnerKeys(root, (signing_key(folder / "targets"),), needed)


@contextmanager
def fetching(tmp_path: Path, board_root: Path, now: float = BEGIN) -> Iterator[Fetching]:
    """A server with an empty folder of releases, and the enrolled board in `board_root`."""
    clock = Clock(now)
    folder = ReleaseFolder(tmp_path / "releases", clock)
    owner = owner_keys(tmp_path / "owner")
    folder.create(owner)
    server = ProfileServer(ProfileStore(tmp_path / "store"), ("127.0.0.1", 0), releases=folder)
    with serving(server):
        home = enroll_board(server, folder, board_root, NAME)
        yield Fetching(server, folder, owner, Store(board_root), home, clock)


def enroll_board(server: ProfileServer, folder: ReleaseFolder, root: Path, name: str) -> PushTarget:
    """Lets the board in the folder `root` fetch; returns its server."""
    board = Device(LocalTransport(root, name))
    home = enroll(board, server.store, "127.0.0.1", server.port)
    enroll_to_fetch(board, folder, FetchSettings(FAST, 600), start=False)
    return home


def rewrite(place: Fetching, name: str, change: Callable[[dict[str, object]], None]) -> None:
    """Changes metadata and signs it with the server's own key, as a thief would."""
    path = place.folder.path / "metadata" / name
    signed = read_signed(path)
    change(signed)
    path.write_bytes(sign(signed, [signing_key(place.folder.path / "online")]))

"""Virtual boards in a network that lets nothing in fetch their releases from a server outside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.fetch import FetchSettings
from edgekit.host.deploy.api import connect
from edgekit.host.deploy.bundle import Bundle, host_key, sign_bundle, signing_key
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore, enroll
from edgekit.host.fleet.updates import Offered, OwnerKeys, ReleaseFolder, enroll_to_fetch
from edgekit.host.fleet.updates.metadata import read_signed, sign
from edgekit.host.virtual import BoardOptions, RunningBoard, down, up
from edgekit.host.virtual.qmp import Qmp
from tests.support.namespace import inside, missing, namespace
from tests.support.profile_servers import serving
from tests.support.tiny_bundles import tiny_artifact, with_weights

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.boards,
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}"),
]

_BOARDS = ("a57", "a53", "a72")  # share one image
_COUNT = 1 << 16
_RATE = 1_000_000  # bits per second; a cut comes during the download
_SECONDS = 300.0  # for a command on a busy host
_ROOT = "/home/edge/.edgekit"
_AS_USER = "chroot --userspec=edge:edge / env HOME=/home/edge"
_POLL = f"{_AS_USER} python3 -I -S /home/edge/runtime.pyz --root {_ROOT} fetch-releases"
_KEEP = "cd /home/edge && cp .edgekit/runtime/*.pyz runtime.pyz && chown edge runtime.pyz && sync"


@dataclass
class Field:
    """Boards, and the server outside of their network; a technician has only their consoles."""

    space: str
    folder: Path
    releases: ReleaseFolder
    owner: OwnerKeys
    boards: dict[str, RunningBoard]
    bundles: list[Bundle]

    def start(self, name: str) -> None:
        """Switches a board on, on its own disk."""
        disk = str(self.folder / f"{name}.img")
        with inside(self.space):
            board = up(name, options=BoardOptions(disk=disk, outgoing=True))
        board.run_as_root("ip route replace default via 10.0.2.2", seconds=_SECONDS)
        self.boards[name] = board

    def close_inbound(self, name: str) -> None:
        """Removes the only way into a board's network."""
        board = self.boards[name]
        with Qmp(board.control / "qmp", seconds=_SECONDS, alive=lambda: board.alive) as qmp:
            assert "HOST_FORWARD" in qmp.monitor("info usernet")
            qmp.monitor(f"hostfwd_remove net tcp:127.0.0.1:{board.ssh_port}")
            assert "HOST_FORWARD" not in qmp.monitor("info usernet")

    def offer(self, number: int) -> str:
        bundle = sign_bundle(self.bundles[number], host_key())
        offered = Offered(bundle.manifest.id, "", f"rollout-{number}", _BOARDS)
        self.releases.offer(self.owner, [bundle], [offered])
        return bundle.manifest.id

    def poll(self, name: str) -> dict[str, Any]:
        """One poll by a board's own program; its document."""
        said = self.boards[name].run_as_root(f"{_POLL} 2>&1 || true", seconds=_SECONDS)
        document: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
        return document

    def fetch(self, names: Sequence[str] = _BOARDS) -> None:
        """Boards take what they are offered, and say so."""
        for name in names:
            (ended,) = self.poll(name)["releases"]
            assert ended["end"] == "committed"
            assert self.releases.reports(name)[""].current == ended["release"]

    def refuse(self, why: str, release: str) -> None:
        """Boards refuse the metadata and keep their release."""
        for name in _BOARDS:
            assert why in self.poll(name)["error"]["message"]
            assert self.current(name) == release

    def current(self, name: str) -> str:
        return self.boards[name].run_as_root(f"readlink {_ROOT}/current").strip().split("/")[-1]

    @property
    def metadata(self) -> Path:
        return self.releases.path / "metadata"


@pytest.fixture
def field(own_home: Path, tmp_path: Path) -> Iterator[Field]:
    releases, owner = ReleaseFolder(tmp_path / "releases"), OwnerKeys.of_host()
    releases.create(owner)
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.05, _COUNT)
    target = ("-target", "aarch64-linux-gnu")
    artifact = tiny_artifact(tmp_path, f'TINY_WEIGHTS="{4 * _COUNT}"', target=target)
    bundles = []
    for number in range(4):
        data = weights.astype(np.float32).tobytes()
        bundles.append(with_weights(artifact, data, number, "a53"))
        weights = weights * rng.normal(1, 1e-3, _COUNT)
    with namespace() as (space, address):
        server = ProfileServer(ProfileStore(tmp_path / "store"), (address, 0), releases=releases)
        place = Field(space, tmp_path, releases, owner, {}, bundles)
        try:
            with serving(server):
                for name in _BOARDS:
                    place.start(name)
                    with inside(space):
                        device = connect(name)
                        device.call("enroll", "--key", host_key().public.line)
                        enroll(device, server.store, address, server.port)
                        enroll_to_fetch(device, releases, FetchSettings(_RATE, 600), start=False)
                        device.transport.close()
                    place.boards[name].run_as_root(_KEEP)
                    place.close_inbound(name)
                yield place
        finally:
            for name in _BOARDS:
                down(name)


def test_boards_that_nobody_reaches_fetch_and_refuse(field: Field, tmp_path: Path) -> None:
    first = field.offer(0)
    field.fetch()

    # The power fails in the middle of a download.
    field.offer(1)
    lost = _BOARDS[2]
    begin = f"{_POLL} >/dev/null 2>&1 & "
    field.boards[lost].run_as_root(
        f"{begin} until ls {_ROOT}/fetch/files/*.delta; do sleep 0.1; done", seconds=_SECONDS
    )
    field.boards[lost].kill()
    field.start(lost)
    field.close_inbound(lost)
    assert field.current(lost) == first
    field.fetch()
    assert all(field.releases.reports(name)[""].saved_bytes > 0 for name in _BOARDS)

    # The owner's and the server's keys are replaced.
    old = tmp_path / "old"
    shutil.copytree(field.metadata, old)
    new = replace(field.owner, root=(signing_key(tmp_path / "new-root"),))
    field.releases.rotate(new, field.owner, new_online=True)
    field.owner = new
    newest = field.offer(2)
    field.fetch()

    # A thief of the server lets time stand still, or brings old metadata.
    good = (field.metadata / "timestamp.json").read_bytes()
    signed = read_signed(field.metadata / "timestamp.json")
    expired = {**signed, "version": signed["version"] + 1, "expires": "2020-01-01T00:00:00Z"}
    online = signing_key(field.releases.path / "online")
    (field.metadata / "timestamp.json").write_bytes(sign(expired, [online]))
    field.refuse("timestamp metadata: expected it to be valid at", newest)
    (field.metadata / "timestamp.json").write_bytes(good)
    kept = tmp_path / "kept"
    field.metadata.rename(kept)
    shutil.copytree(old, field.metadata)
    for root in kept.glob("*.root.json"):
        shutil.copy(root, field.metadata)
    field.refuse("timestamp metadata: expected", newest)
    shutil.rmtree(field.metadata)
    kept.rename(field.metadata)
    field.offer(3)
    field.fetch()

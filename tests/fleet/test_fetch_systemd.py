"""Boards that fetch under a real systemd: from the enrollment on, after a kill and after a boot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.fetch import FetchSettings
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore, enroll
from edgekit.host.fleet.updates import Offered, ReleaseFolder, enroll_to_fetch
from tests.support.fetching import FAST, owner_keys
from tests.support.patience import until
from tests.support.profile_servers import serving
from tests.support.systemd_machine import USER, Machine, missing

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path / "machine")
    try:
        found.boot()
        assert found.run("loginctl", "enable-linger", USER, user=False).returncode == 0
        yield found
    finally:
        found.close()


def test_a_board_fetches_from_boot_on(
    machine: Machine,
    tmp_path: Path,
    trusted: SigningKey,
    tiny: Callable[..., Bundle],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "edgekit"))
    folder, owner = ReleaseFolder(tmp_path / "releases", time.time), owner_keys(tmp_path / "owner")
    folder.create(owner)
    device = Device(machine.transport())
    device.call("enroll", "--key", trusted.public.line)
    board = Store(machine.home / ".edgekit")

    def offered(counter: int) -> None:
        """Offers a release; returns when the board runs it."""
        bundle = tiny(counter=counter)
        offer = Offered(bundle.manifest.id, "", f"rollout-{counter}", (device.name,))
        folder.offer(owner, [bundle], [offer])
        until(lambda: board.links().current == bundle.manifest.id)

    with serving(
        ProfileServer(ProfileStore(tmp_path / "store"), ("127.0.0.1", 0), releases=folder)
    ) as server:
        enroll(device, server.store, "127.0.0.1", server.port)
        started = enroll_to_fetch(device, folder, FetchSettings(FAST, 1))
        assert (started["boot"], started["started"]) == ("systemd", True)
        offered(0)
        agent = board.root / "fetch" / "agent"
        inside = machine.run("cat", str(agent)).stdout.strip()
        assert machine.run("kill", "-KILL", inside).returncode == 0
        offered(1)
        machine.cut_power()
        machine.boot()
        offered(2)

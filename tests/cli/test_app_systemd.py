"""Installed applications under systemd: started at boot without a login, and after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.app_folder import AppFolder
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.release import enroll_host
from tests.support.applications import write_application
from tests.support.systemd_machine import USER, Machine, missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}"),
]
IDLE = "import edgekit_runtime, signal\nedgekit_runtime.alive('looks')\nsignal.pause()\n"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path / "machine")
    try:
        found.boot()
        yield found
    finally:
        found.close()


@pytest.fixture
def device(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "edgekit"))
    found = Device(machine.transport())
    enroll_host(found)
    return found


def running(device: Device, but: int = 0) -> int:
    """PID of the application once it runs in a process other than `but`."""
    while (state := device.application_status()).state != "running" or state.pid == but:
        pass
    return state.pid


def test_application_starts_at_boot_and_after_a_kill(
    machine: Machine, device: Device, tmp_path: Path, tiny: Any
) -> None:
    assert machine.run("loginctl", "enable-linger", USER, user=False).returncode == 0
    device.install(write_application(tmp_path / "idle", IDLE), tiny())
    started = device.start_application()
    assert (started.state, started.said, started.boot) == ("running", "looks", "systemd")

    folder = AppFolder(Store(machine.home / ".edgekit"))
    inside = machine.run("cat", str(folder.lock)).stdout.split()[0]
    assert machine.run("kill", "-KILL", inside).returncode == 0
    again = running(device, but=started.pid)

    machine.cut_power()
    machine.boot()
    running(device, but=again)
    shown = machine.run("cat", f"/proc/{device.application_status().pid}/cgroup").stdout
    assert "/user@1000.service/" in shown

    assert device.stop_application().boot == ""
    machine.cut_power()
    machine.boot()
    assert device.application_status().state == "stopped"

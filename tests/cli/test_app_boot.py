"""Installed applications that systemd or cron starts at boot."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.app_folder import AppFolder
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import sign_bundle
from tests.support.applications import write_application as write
from tests.support.init_systems import board_with
from tests.support.patience import until
from tests.support.places import few_or_all

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("who", few_or_all(["systemd", "cron", ""], ["systemd", ""]))
def test_application_starts_at_boot_until_it_is_stopped(
    edgekit: Any, home: Path, deployed: Path, tmp_path: Path, monkeypatch: Any, who: str
) -> None:
    board_with(tmp_path / "board", monkeypatch, systemd=who == "systemd", cron=who == "cron")
    edgekit("app", "new", "serve", home / "doors")
    installed = edgekit("app", "install", home / "doors", "--json").document
    assert (installed["state"], installed["boot"]) == ("running", who)
    row = f"boot     {who} starts it" if who else "boot     add to a start script, as its user: "
    assert row in edgekit("app", "status").out

    folder = AppFolder(Store(deployed))
    supervisor = folder.supervisor()
    assert supervisor is not None
    supervisor.terminate()
    until(lambda: folder.supervisor() is None)
    if who != "systemd":  # simulate a boot
        table = tmp_path / "board" / "table"
        row = table.read_text().splitlines()[0] if who else installed["boot_line"]
        line = row.removeprefix("@reboot ")
        subprocess.run(["sh", "-c", line], check=True)
    else:
        subprocess.run(["systemctl", "--user", "restart", *units(tmp_path / "board")], check=True)
    until(lambda: folder.state().state == "running")
    assert edgekit("app", "status", "--json").document["state"] == "running"
    stopped = edgekit("app", "stop", "--json").document
    assert (stopped["state"], stopped["boot"], stopped["boot_line"]) == ("stopped", "", "")
    assert units(tmp_path / "board") == []
    assert who != "cron" or table.read_text() == ""


def test_cron_starts_a_supervisor_again_that_was_killed(
    edgekit: Any, home: Path, deployed: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    board_with(tmp_path / "board", monkeypatch, cron=True)
    idle = "import edgekit_runtime, signal; edgekit_runtime.alive(); signal.pause()"
    edgekit("app", "install", write(home / "idle", idle))
    row = (tmp_path / "board" / "table").read_text().splitlines()[1]
    assert row.startswith("* * * * * ")
    each_minute = ["sh", "-c", row.removeprefix("* * * * * ")]
    folder = AppFolder(Store(deployed))
    killed = folder.supervisor()
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    until(lambda: not killed.lives())
    subprocess.run(each_minute, check=True)
    # The state in the folder is the killed one's until the new one has written its own.
    until(lambda: edgekit("app", "status", "--json").document["state"] == "running")
    again = folder.supervisor()
    started = subprocess.run(
        ["sh", "-c", row.removeprefix("* * * * * ").replace(" &", "; echo $?").partition(" #")[0]],
        check=True,
        capture_output=True,
        text=True,
    )
    assert started.stdout == "0\n"  # grep found the running supervisor
    assert folder.supervisor() == again


def test_nothing_of_a_removed_model_runs_or_starts_at_boot(
    edgekit: Any, home: Path, deployed: Path, tiny: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    board_with(tmp_path / "board", monkeypatch, cron=True)
    sign_bundle(tiny()).write(home / "tiny.ekb")
    edgekit("deploy", home / "tiny.ekb", "--name", "one")
    install = ("app", "install", write(home / "once", "print('done')"), "--name", "one", "--json")
    assert edgekit(*install).document["boot"] == "cron"
    supervisor = AppFolder(Store(deployed).named("one")).supervisor()
    assert supervisor is not None
    assert edgekit("remove", "--name", "one").code == 0
    assert not supervisor.lives()
    assert (tmp_path / "board" / "table").read_text() == ""


@pytest.mark.parametrize("who", ["systemd", pytest.param("cron", marks=pytest.mark.exhaustive)])
def test_the_supervisor_ends_with_its_application_and_comes_back_with_it(
    edgekit: Any, home: Path, deployed: Path, tiny: Any, tmp_path: Path, monkeypatch: Any, who: str
) -> None:
    board = board_with(
        tmp_path / "board", monkeypatch, systemd=who == "systemd", cron=who == "cron"
    )
    folder = AppFolder(Store(deployed))
    idle = "import edgekit_runtime, signal; edgekit_runtime.alive(); signal.pause()"
    assert edgekit("app", "install", write(home / "idle", idle)).code == 0
    first = folder.supervisor()
    assert first is not None
    sign_bundle(tiny()).write(home / "tiny.ekb")
    assert edgekit("deploy", home / "tiny.ekb", "--no-application").code == 0
    until(lambda: not first.lives())
    assert not units(board) and (who == "systemd" or (board / "table").read_text() == "")
    assert edgekit("app", "status", "--json").document["state"] == "nothing"

    assert edgekit("rollback").code == 0
    until(lambda: folder.state().state == "running")
    assert edgekit("app", "status", "--json").document["boot"] == who
    killed = folder.supervisor()
    assert killed is not None and killed != first
    os.kill(killed.pid, signal.SIGKILL)
    until(lambda: not killed.lives())
    edgekit("status")  # any later command finds it missing
    until(lambda: folder.state().state == "running")


def units(board: Path) -> list[str]:
    """Names of the remaining systemd units."""
    return [path.name for path in (board / ".config/systemd/user").glob("*")]

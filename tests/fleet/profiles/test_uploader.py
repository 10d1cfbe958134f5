"""Once a board is enrolled, its supervisor sends spooled profiles automatically."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.app_folder import AppFolder
from edgekit.device.runtime.agent.push import home_bytes, read_home
from edgekit.device.runtime.agent.service import boot_entry
from edgekit.device.runtime.agent.spool import Spool
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.agent.supervisor import RestartPace, Supervisor
from edgekit.device.runtime.agent.uploader import Uploader
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import runtime_pyz
from edgekit.host.deploy.release import enroll_host
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.fleet.profiles import ProfileServer, enroll, query
from tests.support.applications import write_application
from tests.support.profile_batches import batch

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


def stored(server: ProfileServer) -> list[tuple[object, ...]]:
    return list(query(server.store, "SELECT uuid FROM batches ORDER BY 1", 99).rows)


class Beside:
    """A uploader with a board's spool and a simulated clock."""

    def __init__(self, root: Path) -> None:
        runtime = root / "runtime.pyz"
        root.mkdir(exist_ok=True)
        runtime.write_bytes(runtime_pyz())
        self.spool, self.shown, self.now = Spool(root / "spool"), list[str](), 0.0
        command = [sys.executable, "-I", "-S", str(runtime), "--root", str(root), "push-profiles"]
        self.uploader = Uploader(
            Store(root), command, self.shown.append, lambda: self.now, 600.0, random.Random(1)
        )

    def look(self, periods: int) -> int:
        """Advances time by days, waiting for each push to end; returns the number of pushes."""
        sent = 0
        for _ in range(periods):
            self.now += 24 * 3600.0
            self.uploader.look()
            if (process := self.uploader._process) is not None:
                process.wait()
                sent += 1
                self.uploader.look()
        return sent


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    found = Beside(tmp_path / "board")
    for number in range(3):
        found.spool.add(batch(number))
    yield found
    found.uploader.close()


def enrolled(server: ProfileServer, beside: Beside) -> None:
    transport = LocalTransport(beside.spool.folder.parent, "board")
    enroll(Device(transport), server.store, "127.0.0.1", server.port)


def test_what_waits_is_sent_once_the_board_is_enrolled(
    server: ProfileServer, beside: Beside
) -> None:
    assert (beside.look(2), len(stored(server))) == (0, 0)
    enrolled(server, beside)
    assert (beside.look(3), len(stored(server))) == (1, 3)
    assert not beside.spool.waits
    beside.spool.add(batch(7))
    assert (beside.look(3), len(stored(server))) == (1, 4)
    assert beside.shown == []


def test_nothing_is_sent_where_sampling_is_off(server: ProfileServer, beside: Beside) -> None:
    enrolled(server, beside)
    beside.spool.switch("off")
    assert (beside.look(3), len(stored(server))) == (0, 0)
    beside.spool.switch("on")
    assert (beside.look(1), len(stored(server))) == (1, 3)


@pytest.mark.slow
def test_a_revoked_token_is_reported_once_and_nothing_is_lost(
    server: ProfileServer, beside: Beside
) -> None:
    enrolled(server, beside)
    home = read_home(beside.spool.home)
    beside.spool.home.write_bytes(home_bytes(replace(home, token="0" * 64)))
    assert (beside.look(3), len(stored(server))) == (3, 0)
    (line,) = beside.shown
    assert "401 an unknown or revoked token" in line
    assert "on the host: edgekit fleet enroll board" in line
    enrolled(server, beside)
    assert (beside.look(1), len(stored(server))) == (1, 3)


def test_boards_that_start_together_do_not_send_together(tmp_path: Path) -> None:
    firsts = {
        Uploader(Store(tmp_path), [], str, lambda: 0.0, 600.0, random.Random(i))._due
        for i in range(50)
    }
    assert (len(firsts), max(firsts) < 600, min(firsts) < 60) == (50, True, True)


def test_the_supervisor_of_an_application_sends(
    server: ProfileServer,
    device: Any,
    tiny: Any,
    board_root: Path,
    tmp_path: Path,
) -> None:
    enroll_host(device)
    idle = write_application(tmp_path / "idle", "import signal\nsignal.pause()\n")
    device.install(idle, tiny())
    enroll(device, server.store, "127.0.0.1", server.port)
    folder, spool = AppFolder(Store(board_root)), Spool(board_root / "spool")
    folder.create()
    folder.runtime.write_bytes(runtime_pyz())
    spool.add(batch(1))

    def clock() -> float:
        if not spool.waits:
            folder.stopped.touch()
        return time.monotonic()

    def no_handler(*_: object) -> None:
        """Sets no handler of a signal: pytest's own stay."""

    Supervisor(
        Store(board_root), boot_entry(Store(board_root)), RestartPace(send=0.001), clock, no_handler
    ).run()
    assert len(stored(server)) == 1

"""Conditions a supervisor survives: applications that close their output, full disks."""

from __future__ import annotations

import argparse
import itertools
import marshal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.app_commands import run_and_resume
from edgekit.device.runtime.agent.app_folder import HALF_LOG_BYTES, RUNNING, AppFolder, AppState
from edgekit.device.runtime.agent.application import ApplicationSpec
from edgekit.device.runtime.agent.boot import Boot
from edgekit.device.runtime.agent.child import Child
from edgekit.device.runtime.agent.service import boot_entry
from edgekit.device.runtime.agent.store import Links, Store
from edgekit.device.runtime.agent.supervisor import RestartPace, Supervisor
from edgekit.device.runtime.errors import DeviceError
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import sign_bundle
from edgekit.host.deploy.release import enroll_host
from tests.support.applications import write_application

FLOOD = """
import os, socket, threading
def shout():
    signs = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    signs.connect("\\0" + os.environ["NOTIFY_SOCKET"][1:])
    while True:
        signs.send(b"WATCHDOG=1")
threading.Thread(target=shout).start()
while True:
    print("endless\\n" * 1000, end="")
"""
SILENT = "import os, signal\nprint('on', flush=True)\nos.close(1)\nos.close(2)\nsignal.pause()\n"


def no_handler(*_: object) -> None:
    """Sets no handler of a signal: pytest's own stay."""


def test_an_application_that_closes_its_output_goes_on(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SILENT)
    child = Child(
        ApplicationSpec("quiet", "main.py", (), 0, 0, ("main.py",)), tmp_path, tmp_path, {}
    )
    while not (printed := child.read()):
        time.sleep(0.01)
    assert (printed, child.ended()) == (b"on\n", "")
    child.end()
    child.close()
    assert child.ended() == "was killed by SIGTERM: on"


@pytest.mark.slow
def test_endless_output_and_signs_keep_neither_the_supervisor_busy_nor_fill_the_disk(
    tmp_path: Path, device: Device, tiny: Any, board_root: Path
) -> None:
    enroll_host(device)
    device.install(write_application(tmp_path / "flood", FLOOD), tiny())
    kept = AppFolder(Store(board_root))
    pace = RestartPace(look=0.05)
    asked: list[float] = []

    def logged() -> int:
        return sum(path.stat().st_size for path in kept.root.glob("log*"))

    def clock() -> float:
        if kept.last_lines(1):
            asked.append(time.monotonic())
        if asked and asked[-1] > asked[0] + 1 and logged() > HALF_LOG_BYTES:
            kept.stopped.touch()
        return time.monotonic()

    Supervisor(Store(board_root), boot_entry(Store(board_root)), pace, clock, no_handler).run()
    assert "endless" in kept.last_lines(2)
    assert HALF_LOG_BYTES < logged() <= 3 * HALF_LOG_BYTES
    looks = (asked[-1] - asked[0]) / pace.look
    assert len(asked) < looks * (64 + 10)  # per look: a sign at a time, and a few times


def test_what_an_application_imports_is_compiled_before_its_watchdog_runs(
    tmp_path: Path, device: Device, tiny: Any, board_root: Path
) -> None:
    enroll_host(device)
    folder = tmp_path / "late"
    folder.mkdir()
    (folder / "app.toml").write_text("")
    (folder / "main.py").write_text("raise SystemExit(1)")  # imports nothing itself
    device.install(folder, tiny())
    kept = AppFolder(Store(board_root))
    ticks = itertools.count(step=0.1)

    def clock() -> float:
        if any("ended" in line for line in kept.last_lines(5)):
            kept.stopped.touch()
        return next(ticks)

    Supervisor(
        Store(board_root), boot_entry(Store(board_root)), RestartPace(look=0.0), clock, no_handler
    ).run()
    (path,) = (board_root / "bytecode").iterdir()
    assert "edgekit.device.runtime.application.model" in marshal.loads(path.read_bytes()[4:])


def test_the_first_heartbeat_may_take_longer(
    tmp_path: Path, device: Device, tiny: Any, board_root: Path
) -> None:
    enroll_host(device)
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "app.toml").write_text("watchdog_seconds = 7")
    (folder / "main.py").write_text("import signal\nsignal.pause()\n")
    device.install(folder, tiny())
    kept = AppFolder(Store(board_root))
    ticks = itertools.count(step=0.1)

    def clock() -> float:
        now = next(ticks)
        if now > 60 or any("no heartbeat" in line for line in kept.last_lines(5)):
            kept.stopped.touch()
        return now

    Supervisor(
        Store(board_root),
        boot_entry(Store(board_root)),
        RestartPace(look=0.0, first_sign=3),
        clock,
        no_handler,
    ).run()
    assert "edgekit: slow sent no heartbeat for 21 s" in kept.last_lines(5)


def test_damaged_files_of_an_application_are_never_run(
    tmp_path: Path, device: Device, tiny: Any, board_root: Path
) -> None:
    enroll_host(device)
    device.install(write_application(tmp_path / "doors", "print('on')"), tiny())
    store = Store(board_root)
    manifest = store.manifest(str(store.links().current))
    program = (
        store.releases / manifest.id / str(manifest.application and manifest.application.entry)
    )
    program.unlink()
    program.symlink_to(tmp_path / "doors" / "main.py")
    with pytest.raises(OSError, match="symbolic links"):
        AppFolder(store).copy(manifest)
    program.unlink()
    program.write_text("print('off')")
    with pytest.raises(DeviceError, match=r"main.py: expected SHA-256 \w{16}, found \w{16}"):
        AppFolder(store).copy(manifest)


class BootAtCommit(Boot):
    """A boot entry; a release with an application is committed just when it is removed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.root, [], store.root / "lock", "app-supervise")
        self.store, self.calls = store, list[str]()

    def forget(self) -> None:
        self.calls.append("forget")
        links = self.store.links()
        self.store.set_links(Links(links.previous, links.current))

    def arrange(self) -> str:
        self.calls.append("arrange")
        return ""


@pytest.mark.slow
def test_an_application_committed_while_its_supervisor_ends_is_supervised(
    tmp_path: Path, device: Device, tiny: Any, board_root: Path
) -> None:
    enroll_host(device)
    device.install(write_application(tmp_path / "once", "print('done')"), tiny())
    device.deploy(sign_bundle(tiny()), application=False)
    store = Store(board_root)
    kept, boot = AppFolder(store), BootAtCommit(store)
    ticks = itertools.count(step=0.1)

    def clock() -> float:
        if any("ended" in line for line in kept.last_lines(5)):
            kept.stopped.touch()
        return next(ticks)

    Supervisor(store, boot, RestartPace(look=0.0), clock, no_handler).run()
    assert boot.calls == ["forget", "arrange"]
    assert kept.last_lines(2)[0] == "done"
    assert kept.supervisor() is None


def test_a_state_that_cannot_be_written_is_the_one_before(tmp_path: Path) -> None:
    folder = AppFolder(Store(tmp_path / "board"))
    folder.create()
    (folder.root / ".state.json").mkdir()
    (folder.root / "proved").mkdir()
    folder.write_state(AppState(RUNNING, "doors"))
    folder.prove("0123456789abcdef")
    assert (folder.state().name, folder.proved()) == ("", "")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="looking for a folder cannot fail")
def test_a_command_stays_successful_where_no_application_can_be_looked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    committed = {"schema": "edgekit.apply/1"}
    unreadable = Path("x" * 300)  # too long a name
    options = argparse.Namespace(command="apply", root=unreadable, run=lambda _: committed)
    assert run_and_resume(options) == committed
    assert "expected to start it, found File name too long" in capsys.readouterr().err

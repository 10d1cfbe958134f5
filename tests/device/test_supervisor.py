"""What a supervisor goes on with: silent applications, full disks."""

from __future__ import annotations

import selectors
from pathlib import Path

from edgekit.device.agent.app_folder import RUNNING, AppFolder, AppState
from edgekit.device.agent.application import ApplicationSpec
from edgekit.device.agent.child import Child
from edgekit.device.agent.store import Store

SILENT = "import os, signal\nprint('on', flush=True)\nos.close(1)\nos.close(2)\nsignal.pause()\n"


def test_an_application_that_closes_its_output_goes_on(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SILENT)
    child = Child(
        ApplicationSpec("quiet", "main.py", (), 0, 0, ("main.py",)), tmp_path, tmp_path, {}
    )
    printed = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.output, selectors.EVENT_READ)
        while not child.closed_output:
            selector.select()
            printed += child.read()
    assert (printed, child.ended()) == (b"on\n", "")
    child.end()
    child.close()
    assert child.ended() == "was killed by SIGTERM: on"


def test_a_state_that_cannot_be_written_is_the_one_before(tmp_path: Path) -> None:
    folder = AppFolder(Store(tmp_path / "board"))
    folder.create()
    (folder.root / ".state.json").mkdir()
    (folder.root / "proved").mkdir()
    folder.write_state(AppState(RUNNING, "doors"))
    folder.prove("0123456789abcdef")
    assert (folder.state().name, folder.proved()) == ("", "")

"""Failures on a board with an application, as its user sees them."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.app_folder import AppFolder
from edgekit.device.runtime.agent.spool import Spool
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import sign_bundle
from tests.support.patience import until
from tests.support.profile_batches import batch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("bare_init")]
SAYS = "import edgekit_runtime, signal\nedgekit_runtime.alive({!r})\nsignal.pause()\n"


@pytest.fixture
def board(edgekit: Any, home: Path, tiny: Any) -> Iterator[Path]:
    """The folder of a board running the tiny model and an application, stopped at teardown."""
    sign_bundle(tiny()).write(home / "tiny.ekb")
    assert edgekit("app", "install", written(home, "one"), home / "tiny.ekb").code == 0
    yield home.parent / "home" / "boards" / "local"
    edgekit("app", "stop")


def written(home: Path, name: str) -> Path:
    """An application that reports its name."""
    folder = home / name
    folder.mkdir()
    (folder / "main.py").write_text(SAYS.format(name))
    (folder / "app.toml").write_text("watchdog_seconds = 0")  # it reports only once
    return folder


def test_a_board_whose_disk_is_full_keeps_the_application_that_runs(
    edgekit: Any, edgekit_process: Any, home: Path, board: Path
) -> None:
    before = edgekit("app", "status", "--json").document
    two = written(home, "two")
    for most in (0, 5_000):
        done = edgekit_process(
            "app", "install", two,
            preexec_fn=lambda most=most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )  # fmt: skip
        assert done.code not in (0, 1)
        assert done.complaint.startswith("edgekit: ")
    assert edgekit("app", "status", "--json").document == before
    assert edgekit("app", "install", two, "--json").document["said"] == "two"


def test_folders_of_an_application_that_are_gone_are_made_again(
    edgekit: Any, home: Path, board: Path
) -> None:
    supervisor = AppFolder(Store(board)).supervisor()
    edgekit("app", "stop")
    assert supervisor is not None
    until(lambda: not supervisor.lives())  # its lock is free a moment before it ends
    shutil.rmtree(board / "app")
    assert edgekit("app", "start", "--json").document["said"] == "one"


def test_a_board_that_cannot_reach_its_home_tells_it_in_one_line_and_loses_nothing(
    edgekit: Any, home: Path, board: Path
) -> None:
    pytest.importorskip("pyarrow")
    Spool(board / "spool").add(batch(1))
    assert edgekit("fleet", "enroll", "local", "--server", "localhost:1").code == 0
    runtime = [sys.executable, "current/runtime.pyz", "--root", ".", "push-profiles"]
    done = subprocess.run(runtime, cwd=board, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "localhost:1: expected to send profiles, found [Errno 111]" in done.stdout
    assert Spool(board / "spool").fetch(1).data
    assert edgekit("profile", "pull", "--board", "local", "--json").document["stored"]["new"] == 1

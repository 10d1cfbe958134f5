"""Boards that fetch their releases: enrolled, served, rolled out and rolled back by commands."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.common.paths import data_folder
from edgekit.host.deploy.bundle import Bundle, sign_bundle
from edgekit.host.deploy.bundle.sign import host_key
from edgekit.host.deploy.inventory import add_boards
from tests.support.board_farm import Farm, running_farm
from tests.support.init_systems import board_with
from tests.support.patience import until
from tests.support.profile_servers import end_server, start_server

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow


@pytest.fixture
def farm(edgekit: Any, home: Path, monkeypatch: Any, tmp_path: Path) -> Iterator[Farm]:
    """Two enrolled boards that cron has started, and their server in a process of its own."""
    init = board_with(tmp_path / "init", monkeypatch, cron=True)
    with running_farm(tmp_path / "farm", 2) as found:
        for board in found.boards:
            store = Store(board.root)
            store.create()
            enroll(store, host_key().public.line)
        add_boards(found.entries(site="field"), home / "edgekit.toml")
        name = found.boards[0].name
        releases = ("--releases", "releases", "--poll", "1s", "--fetch-kbit", "1000000")
        enrolling = ("profile", "server", "enroll", name, *releases, "--server")
        done = edgekit(*enrolling, "localhost")
        assert "fetches  releases every 1s, started by cron" in done.out, done.err
        server, port = start_server(data_folder(), "--releases", "releases")
        try:
            for board in found.boards:
                enrolling = ("profile", "server", "enroll", board.name, *releases, "--server")
                assert edgekit(*enrolling, f"localhost:{port}").code == 0
            for row in (init / "table").read_text().splitlines():
                if row.startswith("* * * * * "):  # what cron does each minute
                    subprocess.run(["sh", "-c", row.removeprefix("* * * * * ")], check=True)
            yield found
        finally:
            end_server(server)
            for board in found.boards:
                os.kill(agent_of(board.root), signal.SIGKILL)


def test_boards_fetch_what_is_rolled_out_and_go_back(
    edgekit: Any, farm: Farm, home: Path, tiny: Callable[..., Bundle]
) -> None:
    old, new = sign_bundle(tiny()), sign_bundle(tiny(counter=1))
    for bundle in (old, new):
        bundle.write(home / f"{bundle.manifest.id}.ekb")
        found = edgekit(
            *("fleet", "deploy", home / f"{bundle.manifest.id}.ekb", "--select", "site=field"),
            *("--releases", "releases", "--canary", "1", "--pause", "0s", "--json"),
        )
        assert found.code == 0, found.err
        assert [row["state"] for row in found.document["boards"]] == ["done", "done"]
        assert runs(farm) == [bundle.manifest.id] * 2
    assert "2 done" in edgekit("status", "--rollout", "newest").out
    back = edgekit("rollback", "--rollout", "newest")
    assert back.code == 0, back.err
    assert runs(farm) == [old.manifest.id] * 2


def agent_of(root: Path) -> int:
    """The process that polls for a board."""
    file = root / "fetch" / "agent"
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def runs(farm: Farm) -> list[str | None]:
    return [Store(board.root).links().current for board in farm.boards]

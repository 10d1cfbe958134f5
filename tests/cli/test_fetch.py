"""Boards that fetch their releases: enrolled, served, rolled out and rolled back by commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.deploy.bundle import sign_bundle
from edgekit.host.deploy.bundle.sign import host_key
from edgekit.host.deploy.inventory import add_boards
from edgekit.host.fleet.profiles import ProfileStore
from edgekit.host.fleet.profiles.server import certificate_of
from tests.support.board_farm import Farm, running_farm
from tests.support.init_systems import board_with
from tests.support.patience import until
from tests.support.profile_servers import end_server, start_edgekit
from tests.support.tiny_bundles import with_weights

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow


@dataclass
class Field:
    """Boards that fetch, and their server, a process with a fixed port."""

    farm: Farm
    port: int
    server: subprocess.Popen[bytes]

    def restart(self, *options: str) -> None:
        """Starts the server again, with options of `fleet serve`."""
        end_server(self.server)
        self.server = _serve(self.port, *options)

    def runs(self) -> list[str | None]:
        return [Store(board.root).links().current for board in self.farm.boards]


def _serve(port: int, *options: str) -> subprocess.Popen[bytes]:
    run = ("fleet", "serve", "--address", "127.0.0.1", "--port", str(port), "--json")
    server = start_edgekit(data_folder(), *run, "--releases", "releases", *options)
    assert server.stdout is not None and server.stdout.readline()
    return server


@pytest.fixture
def field(edgekit: Any, home: Path, monkeypatch: Any, tmp_path: Path) -> Iterator[Field]:
    """Two enrolled boards that cron has started."""
    init = board_with(tmp_path / "init", monkeypatch, cron=True)
    with running_farm(tmp_path / "farm", 2) as found:
        for board in found.boards:
            store = Store(board.root)
            store.create()
            enroll(store, host_key().public.line)
        add_boards(found.entries(site="field"), home / "edgekit.toml")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        for board in found.boards:
            done = edgekit(
                *("fleet", "enroll", board.name, "--server", f"localhost:{port}"),
                *("--releases", "releases", "--poll", "1s", "--fetch-kbit", "1000000"),
            )
            assert "fetches  releases every 1s, started by cron" in done.out, done.err
        place = Field(found, port, _serve(port))
        try:
            for row in (init / "table").read_text().splitlines():
                if row.startswith("* * * * * "):  # what cron does each minute
                    subprocess.run(["sh", "-c", row.removeprefix("* * * * * ")], check=True)
            yield place
        finally:
            end_server(place.server)
            for board in found.boards:
                os.kill(agent_of(board.root), signal.SIGKILL)


def test_boards_fetch_follow_new_keys_and_go_back(
    edgekit: Any, field: Field, home: Path, tiny_artifact: Callable[..., Artifact]
) -> None:
    artifact = tiny_artifact(f'TINY_WEIGHTS="{len(_weights(0))}"')
    bundles = [with_weights(artifact, _weights(epoch), epoch) for epoch in (0, 1)]
    for counter, made in enumerate(bundles):
        if counter:
            keys = ("server", "certificate", "targets", "root")
            field.restart(*(word for key in keys for word in ("--new-key", key)))
        bundle = sign_bundle(made)  # by the key of now
        bundle.write(home / f"{bundle.manifest.id}.ekb")
        found = edgekit(
            *("fleet", "deploy", home / f"{bundle.manifest.id}.ekb", "--select", "site=field"),
            *("--releases", "releases", "--canary", "1", "--pause", "0s", "--json"),
        )
        assert found.code == 0, found.err
        assert [row["state"] for row in found.document["boards"]] == ["done", "done"]
        assert field.runs() == [bundle.manifest.id] * 2
        for row in found.document["boards"]:
            assert (row["saved_bytes"] > 0.3 * len(_weights(0))) == bool(counter)
    said = edgekit("status", "--rollout", "newest").out
    assert "2 done" in said and "of downloads, by deltas" in said
    back = edgekit("rollback", "--rollout", "newest")
    assert back.code == 0, back.err
    assert field.runs() == [bundles[0].manifest.id] * 2
    pinned = {
        json.loads((board.root / "spool" / "home.json").read_bytes())["certificate"]
        for board in field.farm.boards
    }
    assert pinned == {certificate_of(ProfileStore())[1]}


def _weights(epoch: int) -> bytes:
    """Weights that change a little from one epoch to the next."""
    rng = np.random.default_rng(0)
    first, change = rng.normal(0, 0.05, 1 << 15), rng.normal(1, 1e-3, 1 << 15)
    return (first * change**epoch).astype(np.float32).tobytes()


def agent_of(root: Path) -> int:
    """The process that polls for a board."""
    file = root / "fetch" / "agent"
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())

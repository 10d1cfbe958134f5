"""Fixtures that run the command line, in this process (fast) or as a user does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from edgekit.host.cli.main import main
from edgekit.host.deploy.bundle import sign_bundle
from edgekit.host.deploy.transport.ssh_keys import fingerprint
from tests.support.compiler_cache import home_with_shared_cache
from tests.support.init_systems import board_with
from tests.support.sshd import Sshd, running_sshd

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The single error line; progress lines, which end in three dots, are ignored."""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if not line.endswith("...")]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("edgekit: ")
        return lines[0]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and an empty board `local`."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_HOME", str(home_with_shared_cache(tmp_path / "home")))
    return folder


@pytest.fixture
def edgekit(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command line in this process."""

    def run(*arguments: str | Path, app: typer.Typer | None = None) -> Outcome:
        """`app` has the commands (default: those of `edgekit`)."""
        capfd.readouterr()
        code = main([str(a) for a in arguments], app)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def edgekit_process(home: Path) -> Callable[..., Outcome]:
    """Runs a command line in a separate process, as the installed command does."""

    def run(*arguments: str | Path, **options: Any) -> Outcome:
        program = "from edgekit.host.cli.main import run; run()"
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            **options,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def face_model() -> Path:
    """A small real model: MediaPipe's short-range face detector."""
    return ROOT / "models" / "face_detection_short_range.tflite"


@pytest.fixture(scope="module")
def kept_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the home in which the first test of a module deployed."""
    return tmp_path_factory.mktemp("kept") / "home"


@pytest.fixture
def deploy_once(home: Path, kept_home: Path) -> Callable[[Callable[[], None]], Path]:
    """deploy_once(deploy): what `deploy` leaves in an empty home; returns the root of `local`.

    Only the first test of a module deploys; the others copy its home. A fixture's `deploy` is
    always the same.
    """

    def fill(deploy: Callable[[], None]) -> Path:
        here = home.parent / "home"
        if kept_home.exists():
            shutil.copytree(kept_home, here, symlinks=True, dirs_exist_ok=True)
        else:
            deploy()
            shutil.copytree(here, kept_home, symlinks=True, ignore=shutil.ignore_patterns("cache"))
        return here / "boards" / "local"

    return fill


@pytest.fixture
def bare_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board without systemd or cron, so that tests never touch this user's."""
    board_with(tmp_path / "init", monkeypatch)


@pytest.fixture
def deployed(edgekit: Any, home: Path, tiny: Any, deploy_once: Any) -> Iterator[Path]:
    """The folder of a board running the tiny model; its application is stopped at teardown."""

    def deploy() -> None:
        sign_bundle(tiny()).write(home / "tiny.ekb")
        assert edgekit("deploy", home / "tiny.ekb").code == 0

    yield deploy_once(deploy)
    edgekit("app", "stop")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    """This machine behind SSH, with an empty home."""
    with running_sshd(tmp_path / "sshd") as found:
        yield found


@pytest.fixture
def add_options(server: Sshd) -> list[str]:
    """Arguments of `board add` for the server, except the host key."""
    host = f"{server.user}@{server.host}:{server.port}"
    return ["here", "--profile", "local", "--host", host, "--identity", str(server.identity)]


@pytest.fixture
def pinned(edgekit: Any, server: Sshd, add_options: list[str]) -> None:
    """Adds the server to the inventory as `here`."""
    done = edgekit("board", "add", *add_options, "--fingerprint", fingerprint(server.host_key))
    assert done.code == 0, done.err

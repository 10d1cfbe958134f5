"""A running virtual board: login, user, network, console."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edgekit.host.errors import InputError
from edgekit.host.virtual import BoardOptions, RunningBoard, down, find_running, status, up

pytestmark = pytest.mark.boards

_MACHINES = {"a57": "aarch64", "rv64v": "riscv64"}


@pytest.fixture(scope="module", params=["a57", pytest.param("rv64v", marks=pytest.mark.exhaustive)])
def board(request: pytest.FixtureRequest, shared_home: Path) -> Iterator[RunningBoard]:
    """A board of each kind, restored from a saved machine."""
    up(request.param)
    assert down(request.param)
    yield up(request.param)
    down(request.param)


def _ssh(
    board: RunningBoard, folder: Path, *command: str, host_key: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs OpenSSH's client with only the board's host key known."""
    known = folder / "known_hosts"
    known.write_text(f"[{board.ssh_host}]:{board.ssh_port} {host_key or board.host_key}\n")
    options = {
        "BatchMode": "yes",
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(known),
    }
    return subprocess.run(
        [
            *("ssh", "-F", "/dev/null", "-i", str(board.identity), "-p", str(board.ssh_port)),
            *(part for key, value in options.items() for part in ("-o", f"{key}={value}")),
            *(f"{board.user}@{board.ssh_host}", *command),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_login_with_the_known_host_key(board, tmp_path, record_property):
    began = time.monotonic()
    done = _ssh(board, tmp_path, "uname -m; id -u; date +%s")
    record_property("login_seconds", time.monotonic() - began)
    assert done.returncode == 0, done.stderr
    machine, user, clock = done.stdout.split()
    assert (machine, user) == (_MACHINES[board.name], "1000")
    assert abs(int(clock) - time.time()) < 60  # corrected after saving and restoring


def test_another_host_key_is_refused(board, tmp_path):
    kind, key = board.host_key.split()
    other = key[:-8] + ("A" if key[-8] != "A" else "B") + key[-7:]
    done = _ssh(board, tmp_path, "true", host_key=f"{kind} {other}")
    assert done.returncode == 255 and "Host key verification failed" in done.stderr


def test_numpy_and_signatures_are_there(board, tmp_path):
    program = "import numpy, ctypes; print(int(numpy.arange(5).sum()))"
    done = _ssh(board, tmp_path, f"python3 -c '{program}'; command -v ssh-keygen")
    assert done.stdout.split() == ["10", "/usr/bin/ssh-keygen"], done.stderr


def test_user_is_an_ordinary_one(board, tmp_path):
    done = _ssh(board, tmp_path, "touch file && echo wrote; touch /etc/file; cat /etc/shadow; id")
    assert done.stdout.splitlines()[0] == "wrote"
    assert "Read-only file system" in done.stderr and "Permission denied" in done.stderr
    assert done.stdout.splitlines()[-1].endswith("groups=1000(edge)")


def test_guest_reaches_no_network(board, tmp_path):
    program = "import socket; socket.create_connection((chr(49)+'0.0.2.2', 22), 3)"
    done = _ssh(board, tmp_path, f'python3 -c "{program}"')
    assert done.returncode == 1 and "Error" in done.stderr


def _read_until(console: socket.socket, end: bytes) -> bytes:
    found = b""
    while end not in found:
        block = console.recv(4096)
        assert block, found
        found += block
    return found


def test_console_asks_for_the_password(board):
    place = urlsplit(board.console)
    with socket.create_connection((place.hostname, place.port), timeout=60) as console:
        console.sendall(b"\r")
        for prompt, answer in ((b"login: ", board.user), (b"assword: ", board.password)):
            _read_until(console, prompt)
            console.sendall(answer.encode() + b"\r")
        _read_until(console, b"$ ")
        console.sendall(b"id -un; logout\r")
        assert b"\nedge" in _read_until(console, b"login: ")


def test_up_again_is_the_same_board(board):
    assert up(board.name) == board == find_running(board.name)
    state = next(s for s in status() if s.name == board.name)
    assert state.built and state.running == board
    with pytest.raises(InputError, match=f"board down {board.name}"):
        up(board.name, options=BoardOptions(cores=1))

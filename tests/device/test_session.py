"""Locking: which commands may change a board while another one is using it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.session import DeploySession, alone
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import BusyError


def _held(store: Store, seconds: float = 600, owner: DeploySession | None = None) -> int:
    """Starts a process that holds the board's lock; returns its PID once it has the lock."""
    ready, say_ready = os.pipe()
    child = os.fork()
    if child == 0:
        with alone(store, owner):
            os.write(say_ready, b"!")
            time.sleep(seconds)
        os._exit(0)
    os.read(ready, 1)
    os.close(ready)
    os.close(say_ready)
    return child


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "board")
    made.create()
    return made


def test_a_command_whose_host_is_gone_is_waited_for(store):
    child = _held(store, 0.3)
    with alone(store):
        pass
    os.waitpid(child, 0)


def test_a_command_that_does_not_end_is_reported_after_a_while(store):
    child = _held(store)
    other = DeploySession(store, "other", "bob on his laptop", command_seconds=0.2)
    with pytest.raises(BusyError, match="by a command on the board"), alone(store, other):
        pass
    _end(child)


def test_a_deploy_is_not_waited_for(store):
    waits: list[float] = []
    child = _held(store, owner=DeploySession(store, "token", "ann on her laptop"))
    other = DeploySession(store, "other", "bob on his laptop", sleep=waits.append)
    with pytest.raises(BusyError, match="by ann on her laptop"), alone(store, other):
        pass
    assert not waits
    _end(child)

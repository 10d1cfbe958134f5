"""Deploys that are killed, or whose disk fails, before each of their file operations."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from edgekit.device.runtime.agent import release
from edgekit.device.runtime.agent.files import Install
from edgekit.device.runtime.agent.recovery import recover_if_needed
from edgekit.device.runtime.agent.remove import remove
from edgekit.device.runtime.agent.signing import enroll_unsigned
from edgekit.device.runtime.agent.store import Links, Store
from edgekit.device.runtime.errors import DeviceError, InputError, UnhealthyError
from edgekit.host.deploy.bundle import Bundle
from tests.support.places import few_or_all

pytestmark = pytest.mark.slow

MakeBundle = Callable[..., Bundle]
Send = Callable[..., str]
Fault = Callable[[int], None]

_OPERATIONS = frozenset(
    ("open", "os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir")
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_DONE = 100
_MOST = 1000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty board, on tmpfs if available: thousands of fsync calls are slow on disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        found = Store(Path(folder) / "board")
        found.create()
        enroll_unsigned(found)
        yield found


def killed(_: int) -> NoReturn:
    os._exit(1)


def disk_fails_once(_: int) -> NoReturn:
    raise OSError(errno.EIO, "Input/output error")


def disk_stays_full(_: int) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


FAULTS = (killed, disk_fails_once, disk_stays_full)


def test_faults_hit_every_operation(tmp_path: Path) -> None:
    """Tests the harness: a killed child ends early; one without a fault returns its exit code."""
    made, read = tmp_path / "made", Path(__file__)
    assert _in_child(lambda: made.open("w").close(), 0, killed) == 1
    assert _in_child(lambda: made.open("w").close(), 5, killed) == _DONE
    assert _in_child(lambda: read.open().close(), 0, killed) == _DONE
    assert _in_child(lambda: read.open().close(), 0, disk_fails_once) == 2


@pytest.mark.parametrize(
    ("health", "fault"),
    few_or_all(
        itertools.product(["healthy", "sick"], FAULTS),
        [("healthy", killed)],
    ),
)
def test_old_or_new_release_whole(
    store: Store, paper: MakeBundle, send: Send, fault: Fault, health: str
) -> None:
    for bundle in (paper("older"), paper("old")):
        release.apply(store, send(store, bundle), _healthy, _quiet)
    old, new = paper("old").manifest.id, send(store, paper("new"))
    check = _healthy if health == "healthy" else _sick
    for board in _after_faults(store, fault, lambda s: release.apply(s, new, check, _quiet)):
        assert _assert_whole(board).current in (old, new)
        recover_if_needed(board)
        assert _assert_whole(board).current == old or health == "healthy"
        if _assert_whole(board).current == old:
            send(board, paper("new"))
        release.apply(board, new, _healthy, _quiet)
        assert _assert_whole(board) == Links(new, old)
        assert board.installed() == sorted([new, old])


@pytest.mark.parametrize("fault", few_or_all(FAULTS, [killed, disk_stays_full]))
def test_rollback_is_whole(store: Store, paper: MakeBundle, send: Send, fault: Fault) -> None:
    for bundle in (paper("old"), paper("new")):
        release.apply(store, send(store, bundle), _healthy, _quiet)
    before = store.links()
    after = Links(before.previous, before.current)
    for board in _after_faults(store, fault, release.rollback):
        recover_if_needed(board)
        found = _assert_whole(board)
        assert found in (before, after)
        release.rollback(board)
        assert _assert_whole(board) == (after if found == before else before)


@pytest.mark.parametrize(
    ("name", "fault"),
    few_or_all([("", killed), ("wake", killed), ("", disk_fails_once)], [("wake", killed)]),
)
@pytest.mark.exhaustive
def test_removed_whole_or_not_at_all(
    store: Store, paper: MakeBundle, send: Send, fault: Fault, name: str
) -> None:
    def model(board: Store) -> Store:
        return board.named(name) if name else board

    for one in (store, store.named("wake")):
        release.apply(one, send(one, paper("new")), _healthy, _quiet)
    before = store.links()
    for board in _after_faults(store, fault, lambda s: remove(model(s))):
        recover_if_needed(model(board))
        if model(board).links().current:
            assert _assert_whole(model(board)) == before
        with contextlib.suppress(InputError):  # already removed
            remove(model(board))
        assert model(board).links() == Links(None, None)
        assert model(board).installed() == []
        other = board if name else board.named("wake")
        assert _assert_whole(other) == before
        assert [p.name for p in (board.root / "named").iterdir()] == ([] if name else ["wake"])


def _after_faults(store: Store, fault: Fault, act: Callable[[Store], Any]) -> Iterator[Store]:
    """For each file operation of `act`: a copy of `store` after a fault right before it."""
    for k in range(_MOST):
        board = Store(store.root.with_name(f"after-{k}"))
        shutil.copytree(store.root, board.root, symlinks=True)
        ended = _in_child(functools.partial(act, board), k, fault)
        yield board
        shutil.rmtree(board.root)
        if ended == _DONE:
            assert k > 10
            return
    raise AssertionError(f"no end after {_MOST} operations")


def _in_child(act: Callable[[], Any], k: int, fault: Fault) -> int:
    """Runs `act` in a fork with `fault` before its k-th file operation; returns the exit code."""
    child = os.fork()
    if child == 0:
        os._exit(_act_with_fault(act, k, fault))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _act_with_fault(act: Callable[[], Any], k: int, fault: Fault) -> int:
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        # A kill before a read leaves what one before the next write leaves; full disks read.
        reads = event == "open" and not arguments[2] & _WRITES
        if event in _OPERATIONS and not (reads and fault is not disk_fails_once):
            count += 1
            if count == k + 1 or (count > k and fault is disk_stays_full):
                fault(count)

    sys.addaudithook(hook)
    with contextlib.suppress(DeviceError, OSError):
        act()
    return _DONE if count <= k else 2


def _assert_whole(store: Store) -> Links:
    links = store.links()
    assert links.current is not None
    assert Install(store, store.manifest(links.current)).intact()
    return links


def _healthy(_: Path) -> dict[str, Any]:
    return {}


def _sick(_: Path) -> dict[str, Any]:
    raise UnhealthyError("wrong output")


def _quiet(_: str) -> None:
    """Ignores state changes."""

"""A few cases of tests/long/kill_every_syscall.py: system calls that change the running release."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.host.deploy.bundle import Bundle, SigningKey
from tests.support.faults import EIO, ENOSPC, KILL, Scene, calls, cases, outcome
from tests.support.torn import look_in

TinyBundle = Callable[..., Bundle]
RENAMES = frozenset(("rename", "renameat", "renameat2"))
CHANGES = RENAMES | {"symlink", "symlinkat"}


@pytest.fixture(scope="module")
def scene(tiny: TinyBundle, trusted: SigningKey) -> Iterator[Scene]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Scene.build(Path(folder), tiny('TINY_NAME="old"'), tiny('TINY_NAME="new"'), trusted)


@pytest.mark.exhaustive
def test_cases_cover_the_step(scene: Scene) -> None:
    found = calls(scene)
    assert found["fsync"] > 10
    assert sum(found[name] for name in CHANGES) >= 5
    assert sum(found.values()) > 300


@pytest.mark.exhaustive
@pytest.mark.slow
def test_old_or_new_after_each_fault(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    chosen = [*cases(scene, KILL, CHANGES), *cases(scene, ENOSPC, RENAMES)]
    chosen += cases(scene, EIO, (CHANGES - RENAMES) | {"flock"})
    chosen += list(cases(scene, EIO, frozenset(("write",))))[-2:]  # the last write is the answer
    chosen += list(cases(scene, EIO, frozenset(("getcwd",))))[-2:]  # after the commit
    assert len(chosen) >= 10
    assert [problem for case in chosen if (problem := outcome(scene, case)[0])] == []


def test_a_torn_release_is_noticed(scene: Scene) -> None:
    """Tests the check: changed bytes behind the link, then a missing link."""
    board = scene.copy("torn")
    old = scene.old.manifest.id
    assert look_in(board).torn(old) == ""
    weights = board / "current" / "weights.bin"
    weights.write_bytes(weights.read_bytes()[::-1])
    assert "weights.bin: other bytes" in look_in(board).torn(old)
    (board / "current").unlink()
    assert "found None" in look_in(board).torn(old)

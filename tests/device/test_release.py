"""Releases on the board: complete, switched atomically, rolled back if unhealthy or interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent import release, states, status
from edgekit.device.runtime.agent.files import SPARE_BYTES
from edgekit.device.runtime.agent.store import Links, Store
from edgekit.device.runtime.errors import (
    BusyError,
    IncompatibleError,
    InputError,
    RolledBackError,
    TransferError,
    UnhealthyError,
)
from edgekit.host.deploy.bundle import Bundle

MakeBundle = Callable[..., Bundle]
Send = Callable[..., str]


def healthy(_: Path) -> dict[str, Any]:
    return {"ms": 1.0}


def sick(_: Path) -> dict[str, Any]:
    raise UnhealthyError("killed by SIGSEGV", "last words")


def quiet(_: str) -> None:
    """Ignores state changes."""


def apply(store: Store, id_: str, **options: Any) -> release.DeployOutcome:
    return release.apply(store, id_, options.pop("check", healthy), quiet, **options)


def sends(store: Store, id_: str) -> tuple[str, ...]:
    """Files of a release that are still to be sent."""
    plan = release.plan(store, id_)
    assert plan is not None
    return plan.send


@pytest.fixture
def two(store: Store, paper: MakeBundle, send: Send) -> tuple[str, str]:
    """Ids of the running release and of the previous one."""
    first, second = send(store, paper("first")), send(store, paper("second"))
    apply(store, first)
    apply(store, second)
    return second, first


def test_release_is_whole_and_current(store: Store, paper: MakeBundle, send: Send) -> None:
    bundle = paper()
    seen: list[str] = []
    outcome = release.apply(store, send(store, bundle), healthy, seen.append)
    assert seen == list(states.ON_BOARD)
    assert outcome.end == states.COMMITTED
    assert [t.state for t in outcome.states] == seen
    current = store.root / "current"
    assert current.readlink() == Path("releases") / bundle.manifest.id
    for path, data in bundle.files.items():
        assert (current / path).read_bytes() == data
    assert not any(store.incoming.iterdir())


def test_only_current_and_previous_stay(
    store: Store, paper: MakeBundle, send: Send, two: tuple[str, str]
) -> None:
    third = send(store, paper("third"))
    apply(store, third)
    assert store.links() == Links(third, two[0])
    assert store.installed() == sorted([third, two[0]])


def test_same_release_again_changes_nothing(
    store: Store, paper: MakeBundle, send: Send, two: tuple[str, str]
) -> None:
    before = (store.root / "current").lstat()
    outcome = apply(store, send(store, paper("second"), ()), check=sick)
    assert outcome.end == states.UNCHANGED
    after = (store.root / "current").lstat()  # reading it changes its atime
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    assert store.links() == Links(*two)


def test_damaged_current_release_is_mended(
    store: Store, paper: MakeBundle, send: Send, two: tuple[str, str]
) -> None:
    damaged = store.releases / two[0] / "model.so"
    damaged.write_bytes(b"seconD")
    id_ = send(store, paper("second"), ())
    assert sends(store, id_) == ("model.so",)
    apply(store, send(store, paper("second"), ("model.so",)))
    assert damaged.read_bytes() == b"second"
    assert store.links() == Links(*two)


def test_files_of_other_releases_are_not_sent_again(
    store: Store, paper: MakeBundle, send: Send, two: tuple[str, str]
) -> None:
    id_ = send(store, paper("third"), ())
    plan = release.plan(store, id_)
    assert plan is not None
    assert plan.send == ("model.so",)
    assert plan.disk_needed_bytes == len("third") + SPARE_BYTES
    assert apply(store, send(store, paper("third"), plan.send)).end == states.COMMITTED


def test_damaged_file_is_refused_and_sent_again(
    store: Store, paper: MakeBundle, send: Send, two: tuple[str, str]
) -> None:
    id_ = send(store, paper("third"))
    (store.incoming / id_ / "model.so").write_bytes(b"thirD")
    with pytest.raises(TransferError, match=r"model\.so: expected 5 bytes .* found 5 bytes"):
        apply(store, id_)
    assert store.links() == Links(*two)
    assert sends(store, id_) == ("model.so",)


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_strangers_among_the_files_are_refused(
    store: Store, paper: MakeBundle, send: Send, kind: str
) -> None:
    id_ = send(store, paper())
    stranger = store.incoming / id_ / "golden" / "stranger"
    if kind == "file":
        stranger.write_bytes(b"")
    elif kind == "folder":
        stranger.mkdir()
    else:
        stranger.symlink_to("/etc/passwd")
    with pytest.raises(TransferError, match="found 'golden/stranger'"):
        apply(store, id_)
    assert store.links() == Links(None, None)


def test_link_in_place_of_a_file_is_refused(store: Store, paper: MakeBundle, send: Send) -> None:
    id_ = send(store, paper())
    sent = store.incoming / id_ / "model.so"
    sent.rename(store.root / "elsewhere")
    sent.symlink_to(store.root / "elsewhere")
    with pytest.raises(TransferError, match=r"model\.so"):
        apply(store, id_)


def test_unhealthy_release_goes_back(
    store: Store, paper: MakeBundle, send: Send, two: tuple[str, str]
) -> None:
    id_ = send(store, paper("third"))
    with pytest.raises(RolledBackError, match=f"health: killed by SIGSEGV.*{two[0]} runs again"):
        apply(store, id_, check=sick)
    assert store.links() == Links(*two)
    assert store.installed() == sorted(two)
    failure = status.status(store).last_failure
    assert failure is not None
    assert (failure["release"], failure["state"], failure["log"]) == (id_, "health", "last words")


def test_first_release_unhealthy_leaves_nothing(
    store: Store, paper: MakeBundle, send: Send
) -> None:
    with pytest.raises(RolledBackError, match="nothing runs, as before"):
        apply(store, send(store, paper()), check=sick)
    assert store.links() == Links(None, None)
    assert not (store.root / "current").is_symlink()


def test_rollback_swaps_and_swaps_back(store: Store, two: tuple[str, str]) -> None:
    assert release.rollback(store).release == two[1]
    assert store.links() == Links(two[1], two[0])
    release.rollback(store)
    assert store.links() == Links(*two)


def test_rollback_without_previous(store: Store, paper: MakeBundle, send: Send) -> None:
    apply(store, send(store, paper()))
    with pytest.raises(InputError, match="expected a previous release, found none"):
        release.rollback(store)


def test_activate_switches_to_an_installed_release(store: Store, two: tuple[str, str]) -> None:
    release.activate(store, two[1], healthy, quiet)
    assert store.links() == Links(two[1], two[0])
    with pytest.raises(RolledBackError):
        release.activate(store, two[0], sick, quiet)
    assert store.links() == Links(two[1], None) or store.links() == Links(two[1], two[0])
    with pytest.raises((InputError, TransferError)):
        release.activate(store, "0" * 16, healthy, quiet)


def test_older_counter_needs_consent(store: Store, paper: MakeBundle, send: Send) -> None:
    apply(store, send(store, paper(counter=5)))
    older = send(store, paper(counter=4))
    with pytest.raises(IncompatibleError, match="expected counter 5 or more, found 4"):
        apply(store, older)
    assert apply(store, older, allow_downgrade=True).end == states.COMMITTED


def test_too_little_memory(store: Store, paper: MakeBundle, send: Send) -> None:
    id_ = send(store, paper(arena_bytes=1 << 40))
    with pytest.raises(IncompatibleError, match=r"expected 109951162.* bytes of free memory"):
        release.plan(store, id_)


def test_status_of_an_empty_board(tmp_path: Path) -> None:
    found = status.status(Store(tmp_path / "nothing"))
    assert found == status.Status(None, None, False, False, None, {})
    assert not (tmp_path / "nothing").exists()


def test_live_lock_names_its_holder(store: Store, two: tuple[str, str]) -> None:
    with store.lock(), pytest.raises(BusyError, match=rf"pid {os.getpid()}\)"):
        release.rollback(store)
    release.rollback(store)


def test_lock_of_a_killed_process_is_free(store: Store, two: tuple[str, str]) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from edgekit.device.runtime.agent.store import Store\n"
        "with Store(Path(sys.argv[1])).lock():\n    print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store.root)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(BusyError, match=rf"pid {process.pid}\)"):
            release.rollback(store)
        process.send_signal(signal.SIGKILL)
    assert (store.root / "lock").read_text().split()[0] == str(process.pid)
    release.rollback(store)


def test_leftovers_go_the_second_time_they_are_seen(
    store: Store, paper: MakeBundle, send: Send
) -> None:
    """File times, here in 1970 and in the future, are ignored: the clock may be unset."""
    for area in ("incoming", "io", "runtime", "temporary"):
        (store.root / area / "left").mkdir(parents=True)
        os.utime(store.root / area / "left", (0, 0))
    apply(store, send(store, paper("one")))
    for area in ("incoming", "io", "runtime", "temporary"):
        assert [p.name for p in (store.root / area).iterdir()] == ["left"]
        (store.root / area / "fresh").touch()
        os.utime(store.root / area / "fresh", (1e10, 1e10))
    apply(store, send(store, paper("two")))
    for area in ("incoming", "io", "runtime", "temporary"):
        assert [p.name for p in (store.root / area).iterdir()] == ["fresh"]


def test_too_little_disk_is_seen_before_and_after_the_transfer(
    tmp_path: Path, paper: MakeBundle, send: Send, store: Store
) -> None:
    class Full(Store):
        def free_bytes(self) -> int:
            return SPARE_BYTES - 1

    full = Full(store.root)
    id_ = send(full, paper())
    for act in (lambda: release.plan(full, id_), lambda: apply(full, id_)):
        with pytest.raises(
            IncompatibleError, match=f"expected {SPARE_BYTES} bytes of free disk, found"
        ):
            act()
    assert full.installed() == []
    assert full.links() == Links(None, None)


def test_older_counter_is_found_behind_another_model(
    store: Store, paper: MakeBundle, send: Send
) -> None:
    """The release that ran before the other model counts, too."""
    apply(store, send(store, paper(counter=5)))
    apply(store, send(store, paper(name="other")))
    with pytest.raises(IncompatibleError, match="expected counter 5 or more, found 4"):
        apply(store, send(store, paper(counter=4)))

"""Activates and deactivates releases: the board's half of the table in states.py.

At every moment, whatever happens, `current` names an intact release: the old or the new one. From
the first change of a link until commit, pending.json records the links to go back to, so that an
interrupted deploy is undone by the next command that finds the lock free. See docs/releases.md.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from edgekit.device.runtime.agent import states
from edgekit.device.runtime.agent.counters import highest_counter, keep_counters
from edgekit.device.runtime.agent.files import (
    SPARE_BYTES,
    FilePlan,
    Install,
    check_disk,
    clear_unfinished,
    locate,
    plan_files,
    reject_unlisted_files,
)
from edgekit.device.runtime.agent.fit import check_fit
from edgekit.device.runtime.agent.integrity import find_damage, find_damage_of_head, installed_sum
from edgekit.device.runtime.agent.manifest import (
    MANIFEST,
    RUNTIME,
    SIGNATURE,
    Manifest,
    parse_manifest,
)
from edgekit.device.runtime.agent.probe import board_facts
from edgekit.device.runtime.agent.recovery import recover, recover_if_needed, switch
from edgekit.device.runtime.agent.session import alone
from edgekit.device.runtime.agent.signing import check_signature
from edgekit.device.runtime.agent.status import damaged
from edgekit.device.runtime.agent.store import Links, Store, manifest_bytes
from edgekit.device.runtime.bytecode import archive_sum, sum_text
from edgekit.device.runtime.errors import (
    DeviceError,
    IncompatibleError,
    InputError,
    RolledBackError,
    TransferError,
    UnhealthyError,
)
from edgekit.device.runtime.record import Record, asdict

HealthCheck = Callable[[Path], Dict[str, Any]]
OnState = Callable[[str], None]

_TEMPORARY = ("incoming", "io", "runtime", "temporary")


class TimedState(Record):
    """A completed state, and its milliseconds."""

    state: str
    ms: float


class DeployOutcome(Record):
    """The result of an apply, activate or rollback; `end` is a terminal state of states.py."""

    end: str
    release: str
    previous: Optional[str]
    states: Tuple[TimedState, ...]
    health: Dict[str, Any]


def plan(
    store: Store, release: str, allow_downgrade: bool = False, sent: bool = True
) -> Optional[FilePlan]:
    """Returns the release's files that must be sent; rejects a release that cannot fit.

    Returns None if the manifest must be sent first: it is missing, or an earlier deploy left an
    invalid one (with `sent`, the caller has just sent it, and an invalid one is an error).
    """
    recover_if_needed(store)
    folder = store.incoming / release
    try:
        manifest = _incoming_manifest(store, release)
    except DeviceError:
        for name in (MANIFEST, SIGNATURE):
            (folder / name).unlink(missing_ok=True)
        if sent:
            raise
        return None
    _check_fit(store, manifest, allow_downgrade)
    found = plan_files(store, manifest)
    if found.unchanged:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def preview(store: Store, manifest: Manifest, allow_downgrade: bool) -> FilePlan:
    """Returns the result `plan` would have for a manifest that was not sent; changes nothing."""
    _check_fit(store, manifest, allow_downgrade)
    return plan_files(store, manifest, repair=False)


def apply(
    store: Store, release: str, check: HealthCheck, on_state: OnState, allow_downgrade: bool = False
) -> DeployOutcome:
    """Takes incoming/<release> through verify, extract, activate, health and commit.

    The caller is in the deploy's session. TransferError if files are missing or damaged,
    IncompatibleError if the board cannot run it, RolledBackError if it was unhealthy and the
    previous release was restored.
    """
    with store.lock():
        recover(store)
        manifest = _incoming_manifest(store, release)
        if store.links().current == release and Install(store, manifest).intact():
            with contextlib.suppress(OSError):
                prune(store, release)
            return DeployOutcome(states.UNCHANGED, release, store.links().previous, (), {})
        return _Switch(store, manifest, check, on_state, allow_downgrade).run("verify")


def activate(store: Store, release: str, check: HealthCheck, on_state: OnState) -> DeployOutcome:
    """Makes an installed release current, after its health check; raises like `apply`."""
    with alone(store), store.lock():
        recover(store)
        if release not in store.installed():
            raise TransferError(f"release {release}: expected it installed, found none; deploy it")
        if damage := find_damage(store.releases / release, full=True):
            raise damaged(release, damage)
        manifest = store.manifest(release)
        if store.links().current == release:
            return DeployOutcome(states.UNCHANGED, release, store.links().previous, (), {})
        return _Switch(store, manifest, check, on_state, True).run("activate")


def rollback(store: Store) -> DeployOutcome:
    """Swaps `current` and `previous`; InputError if there is no previous release."""
    nothing = InputError("expected a previous release, found none; deploy one first")
    if not store.releases.is_dir():
        raise nothing
    with alone(store), store.lock():
        recover(store)
        links = store.links()
        if links.previous is None:
            raise nothing
        if damage := find_damage(store.releases / links.previous, full=True):
            raise damaged(links.previous, damage)
        switch(store, Links(links.previous, links.current))
        return DeployOutcome(states.COMMITTED, links.previous, links.current, (), {})


class _Switch:
    """One pass through the board's states; the lock is held."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        check: HealthCheck,
        on_state: OnState,
        allow_downgrade: bool,
    ) -> None:
        self.store = store
        self.manifest = manifest
        self.check = check
        self.on_state = on_state
        self.allow_downgrade = allow_downgrade
        self.before = self.after = store.links()
        self.install = Install(store, manifest)
        self.health: Dict[str, Any] = {}

    def run(self, state: str) -> DeployOutcome:
        """Follows the table from `state` to its end; raises at a failing row."""
        passed: List[TimedState] = []
        while state not in states.TERMINAL:
            row = states.BY_NAME[state]
            start = time.monotonic()
            try:
                self.on_state(state)
                getattr(self, "_" + state)()
            except (DeviceError, OSError, UnhealthyError) as error:
                self._fail(row, error)
            passed.append(TimedState(state, (time.monotonic() - start) * 1e3))
            state = row.success
        return DeployOutcome(
            state, self.manifest.id, self.after.previous, tuple(passed), self.health
        )

    def _verify(self) -> None:
        _check_fit(self.store, self.manifest, self.allow_downgrade)
        sent = self.store.incoming / self.manifest.id
        clear_unfinished(sent)
        reject_unlisted_files(sent, self.manifest)
        self.install.sources = locate(self.store, self.manifest, must=True)
        check_disk(self.store, SPARE_BYTES)

    def _extract(self) -> None:
        self.install.write()

    def _activate(self) -> None:
        keep_counters(self.store)
        self.store.write_note(self.store.pending, asdict(self.before))
        again = self.before.current == self.manifest.id
        previous = self.before.previous if again else self.before.current
        self.after = Links(self.manifest.id, previous)
        self.store.set_links(self.after)

    def _health(self) -> None:
        self.health = self.check(self.store.releases / self.manifest.id)

    def _commit(self) -> None:
        self.store.remove_note(self.store.pending)
        # The release is committed; only cleanup remains, which the next deploy can do as well.
        with contextlib.suppress(OSError):
            self.store.failure.unlink(missing_ok=True)
            keep_counters(self.store)
            prune(self.store, self.manifest.id)

    def _fail(self, row: states.DeployState, error: Exception) -> None:
        if row.failure == states.REFUSED:
            if isinstance(error, DeviceError):
                raise error
            raise TransferError(
                f"{row.name}: expected to write the release, found {_error_text(error)}; "
                "check that the disk is neither full nor read-only, then deploy again"
            ) from None
        reason = f"{row.name}: {_error_text(error)}"
        self.store.set_links(self.before)
        self.store.write_note(
            self.store.failure,
            {
                "release": self.manifest.id,
                "state": row.name,
                "reason": reason,
                "log": getattr(error, "log", ""),
            },
        )
        self.store.remove_note(self.store.pending)
        with contextlib.suppress(OSError):
            prune(self.store, self.manifest.id)
        back = self.before.current
        runs = f"release {back} runs again" if back else "nothing runs, as before"
        raise RolledBackError(
            f"release {self.manifest.id} was rolled back ({reason}); {runs}",
            log=getattr(error, "log", ""),
        )


def prune(store: Store, release: str) -> None:
    """Removes releases that no link names, the files sent for `release`, and leftovers.

    Leftovers of killed hosts are deleted only if they were already there at the previous prune;
    mtimes are useless because the clock may be unset.
    """
    links = store.links()
    if store.spool.is_dir():
        from edgekit.device.runtime.agent.c_samples import take_samples

        take_samples(store)  # needs the manifests of releases about to be deleted
    for name in store.installed():
        if name not in (links.current, links.previous):
            shutil.rmtree(store.releases / name, ignore_errors=True)
    shutil.rmtree(store.incoming / release, ignore_errors=True)
    seen = store.read_note(store.leftovers) or {}
    there = [p for area in _TEMPORARY for p in sorted((store.root / area).glob("*"))]
    left = []
    for path in there:
        name = str(path.relative_to(store.root))
        if path.name == Path(sys.argv[0]).name:
            continue
        if name not in seen.get("names", ()):
            left.append(name)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if left or seen:
        store.write_note(store.leftovers, {"names": left})
    _prune_bytecode(store)


def _prune_bytecode(store: Store) -> None:
    """Removes the bytecode of all runtimes except this one and the ones of installed releases, and
    partial files of killed writers."""
    if store.board != store.root and not store.name:
        return  # a temporary folder does not know the board's releases
    folders = (s.releases / release for s in store.siblings() for release in s.installed())
    used = {sum_text(*installed_sum(folder, RUNTIME)) for folder in folders}
    used.add(archive_sum(Path(sys.argv[0])))
    for path in store.bytecode.glob("*"):
        if path.name.partition(".")[0] not in used:
            path.unlink()


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error.strerror or error)
    return str(error)


def _incoming_manifest(store: Store, release: str) -> Manifest:
    """Returns the sent manifest, or that of the installed release, after checking its signature,
    whose key may be trusted no more."""
    folder = store.incoming / release
    if not (folder / MANIFEST).exists():
        folder = store.releases / release
        if damage := find_damage_of_head(folder):
            raise damaged(release, damage)
    data = manifest_bytes(folder)
    signature = folder / SIGNATURE
    check_signature(store, data, signature if signature.exists() else None)
    manifest = parse_manifest(data)
    if manifest.id != release:
        raise TransferError(
            f"expected the manifest of {release}, found that of {manifest.id}; deploy again"
        )
    return manifest


def _check_fit(store: Store, manifest: Manifest, allow_downgrade: bool) -> None:
    check_fit(manifest.board, manifest.most_memory(), board_facts())
    highest = highest_counter(store, manifest.model.name)
    if manifest.counter < highest and not allow_downgrade:
        raise IncompatibleError(
            f"expected counter {highest} or more, found {manifest.counter}; "
            "allow it with --allow-downgrade"
        )

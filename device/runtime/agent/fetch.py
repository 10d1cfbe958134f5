"""Fetches the releases that this board should run, and puts them into service as a push does.

fetch/root.json ...     the metadata that the board trusts; see trusted.py
fetch/settings.json     rate and interval, from the enrollment
fetch/state.json        how the newest rollout of each model ended here, and what was reported
fetch/files/<sha256>    files being downloaded; an interrupted download resumes
fetch/lock              held by the process that fetches

A download holds no lock of the releases, so a host can still deploy meanwhile. The release then
goes through the same states, signature, counter, health check and rollback as one that was pushed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from edgekit.device.runtime.agent import states
from edgekit.device.runtime.agent.delta import Base, base_of, fetch_by_delta
from edgekit.device.runtime.agent.files import SPARE_BYTES
from edgekit.device.runtime.agent.manifest import (
    MANIFEST,
    SIGNATURE,
    FileEntry,
    Manifest,
    parse_manifest,
)
from edgekit.device.runtime.agent.offers import Offer, offers_for
from edgekit.device.runtime.agent.push import Bandwidth, PushTarget
from edgekit.device.runtime.agent.release import HealthCheck, OnState, apply, preview, rollback
from edgekit.device.runtime.agent.renewal import Renewal, keep_certificate
from edgekit.device.runtime.agent.retry import waits
from edgekit.device.runtime.agent.server_link import ServerLink
from edgekit.device.runtime.agent.session import alone
from edgekit.device.runtime.agent.signing import check_signature
from edgekit.device.runtime.agent.status import application_in_service
from edgekit.device.runtime.agent.store import Store, committed, copy_synced, write_synced
from edgekit.device.runtime.agent.strict import (
    distinct_keys,
    integer,
    keys_of,
    short,
)
from edgekit.device.runtime.agent.trusted import TrustedMetadata
from edgekit.device.runtime.errors import (
    BusyError,
    DeviceError,
    IncompatibleError,
    InputError,
    RolledBackError,
    TransferError,
)
from edgekit.device.runtime.record import Record, asdict

log = logging.getLogger("edgekit.fetch")

BACK = "back"  # an end: the board runs the release before, as the offer asks
FAILED = "failed"  # an end: tried again at the next poll
_SETTLED = (states.COMMITTED, states.UNCHANGED, states.ROLLED_BACK, BACK)


class FetchSettings(Record):
    """Rate limit, and seconds between two polls."""

    bits_per_second: int
    period_seconds: int


class Ended(Record):
    """How an offer ended on this board, as it is reported; `end` is a terminal state or FAILED.
    `saved_bytes` were not downloaded, thanks to deltas; a server that has none does not know it."""

    name: str
    rollout: str
    release: str
    back: bool
    end: str
    message: str
    exit_code: int
    current: str
    previous: str
    saved_bytes: int = 0

    @property
    def document(self) -> Dict[str, Any]:
        report = asdict(self)
        if not self.saved_bytes:
            del report["saved_bytes"]
        return report


def fetch_folder(store: Store) -> Path:
    return store.board / "fetch"


def settings_bytes(settings: FetchSettings) -> bytes:
    return json.dumps(asdict(settings)).encode()


def read_settings(store: Store) -> FetchSettings:
    """InputError if this board was not enrolled to fetch, or the file is damaged."""
    path = fetch_folder(store) / "settings.json"
    try:
        raw = json.loads(path.read_bytes(), object_pairs_hook=distinct_keys)
    except FileNotFoundError:
        raise InputError(
            "expected a server to fetch releases from, found none enrolled; on the host: edgekit "
            "fleet enroll BOARD --releases FOLDER"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path.name}: expected JSON, found {short(error)}; enroll again"
        ) from None
    keys_of(raw, path.name, FetchSettings.field_names)
    return FetchSettings(
        integer(raw["bits_per_second"], "bits_per_second", 1000),
        integer(raw["period_seconds"], "period_seconds", 1, 1 << 20),
    )


def fetch(
    store: Store,
    home: PushTarget,
    bandwidth: Bandwidth,
    check: HealthCheck,
    on_state: OnState = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> List[Ended]:
    """One poll: follows what the server offers this board and reports it; returns what was
    reported. Raises the first error afterwards; what was not settled is tried again next time."""
    folder = fetch_folder(store)
    with _alone(folder):
        metadata = TrustedMetadata(folder, clock)
        renewal = Renewal(store, folder, metadata.root)
        with ServerLink(home, bandwidth, metadata.certificate) as link:
            targets = metadata.update(link.metadata)
            keep_certificate(store, home, link.certificate)
            renewal.follow_keys(metadata.root)
            return _Poll(store, link, check, on_state).run(offers_for(targets, home.board))


class _Poll:
    def __init__(
        self, store: Store, link: ServerLink, check: HealthCheck, on_state: OnState
    ) -> None:
        self._store, self._link, self._check, self._on_state = store, link, check, on_state
        self._folder = fetch_folder(store)
        self._files = self._folder / "files"
        self._state = _read_state(self._folder / "state.json")
        self._saved = 0  # bytes of the offer

    def run(self, offers: List[Offer]) -> List[Ended]:
        reported: List[Ended] = []
        first: Optional[Exception] = None
        for offer in offers:
            ended, error = self._follow(offer)
            first = first or error
            document = ended.document
            if self._state.get(offer.name) != document:
                self._link.report(document)
                self._state[offer.name] = document
                write_synced(self._folder / "state.json", json.dumps(self._state).encode())
                reported.append(ended)
        if first is not None:
            raise first
        shutil.rmtree(self._files, ignore_errors=True)
        return reported

    def _follow(self, offer: Offer) -> "tuple[Ended, Optional[Exception]]":
        """Does what an offer asks, unless this board has settled it already."""
        own = self._store.named(offer.name) if offer.name else self._store
        note = self._state.get(offer.name, {})
        same = all(note.get(key) == getattr(offer, key) for key in ("rollout", "release", "back"))
        end, message, code = states.UNCHANGED, "", 0
        self._saved = note.get("saved_bytes", 0) if same else 0
        error: Optional[Exception] = None
        if same and note.get("end") in _SETTLED:
            end, message, code = _still(own, offer, note)
        else:
            try:
                end = self._go_back(own, offer) if offer.back else self._install(own, offer)
            except RolledBackError as rolled:
                end, message, code, error = states.ROLLED_BACK, str(rolled), 7, rolled
            except (DeviceError, OSError) as failed:
                if getattr(failed, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
                    shutil.rmtree(self._files, ignore_errors=True)  # gives the space back
                code = failed.exit_code if isinstance(failed, DeviceError) else 6
                end, message, error = FAILED, short(failed, 500), failed
        links = own.links()
        ended = Ended(
            offer.name,
            offer.rollout,
            offer.release,
            offer.back,
            end,
            message,
            code,
            links.current or "",
            links.previous or "",
            self._saved,
        )
        return ended, error

    def _go_back(self, store: Store, offer: Offer) -> str:
        if committed(store) == offer.release:
            rollback(store)
        return BACK

    def _install(self, store: Store, offer: Offer) -> str:
        manifest, head = self._fetch_manifest(store, offer)
        wanted = preview(store, manifest, False)
        if wanted.unchanged:
            return states.UNCHANGED
        if manifest.application is None and application_in_service(store):
            raise IncompatibleError(
                f"release {manifest.id}: expected one with this board's application, found one "
                "without; offer one that has it"
            )
        missing = {path: manifest.file(path) for path in wanted.send}
        for path, entry in missing.items():
            if base := base_of(store, path):
                self._saved += self._by_delta(store, entry, base)
            self._link.download(entry.sha256, entry.bytes, self._files / entry.sha256)
        with alone(store):
            sent = store.incoming / manifest.id
            sent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, data in head.items():
                write_synced(sent / name, data)
            for path, entry in missing.items():
                _place(self._files / entry.sha256, sent / path)
            return apply(store, manifest.id, self._check, self._on_state).end

    def _by_delta(self, store: Store, entry: FileEntry, base: Base) -> int:
        """Puts a file together from one that is here, if the server has a delta and there is room
        for it; returns the bytes saved."""
        if store.free_bytes() < 2 * entry.bytes + SPARE_BYTES:
            return 0
        return fetch_by_delta(self._link, entry, base, self._files)

    def _fetch_manifest(self, store: Store, offer: Offer) -> "tuple[Manifest, Dict[str, bytes]]":
        """The offered manifest, whose signature by a trusted key is checked, with the files that
        a deploy sends first."""
        self._files.mkdir(mode=0o700, exist_ok=True)
        head: Dict[str, bytes] = {}
        paths = {MANIFEST: offer.manifest, SIGNATURE: offer.signature}
        for name, file in paths.items():
            if file is not None:
                self._link.download(file.sha256, file.length, self._files / file.sha256)
                head[name] = (self._files / file.sha256).read_bytes()
        signature = self._files / offer.signature.sha256 if offer.signature else None
        check_signature(store, head[MANIFEST], signature)
        manifest = parse_manifest(head[MANIFEST])
        if manifest.id != offer.release:
            raise TransferError(
                f"expected the manifest of {offer.release}, found that of {manifest.id}; offer it "
                "again"
            )
        return manifest, head


def _still(store: Store, offer: Offer, note: Dict[str, Any]) -> "tuple[str, str, int]":
    """How a settled offer stands now: the release may have been rolled back since."""
    end, message, code = str(note["end"]), str(note.get("message", "")), note.get("exit_code", 0)
    if end in (states.COMMITTED, states.UNCHANGED) and committed(store) not in (
        offer.release,
        None,
    ):
        failure = store.read_note(store.failure) or {}
        why = failure.get("reason") if failure.get("release") == offer.release else ""
        text = f"release {offer.release} was left ({why or 'by a rollback or another deploy'})"
        return states.ROLLED_BACK, short(text, 500), 7
    return end, message, code if isinstance(code, int) else 0


def _place(source: Path, target: Path) -> None:
    """Puts a downloaded file where a deploy sends it; several paths may have one content."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        copy_synced(source, target)


def _read_state(path: Path) -> Dict[str, Any]:
    """What was reported; nothing if the file is missing or damaged, so that it is repeated."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        raw = json.loads(path.read_bytes())
        if isinstance(raw, dict) and all(isinstance(one, dict) for one in raw.values()):
            return raw
    return {}


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps out other processes that fetch; BusyError if there is one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                "expected no other process to fetch releases, found one; wait for it to end"
            ) from None
        yield


def fetch_for_ever(
    store: Store,
    command: List[str],
    sleep: Callable[[float], None] = time.sleep,
    chance: Optional[random.Random] = None,
) -> None:
    """Runs `command`, one poll, at the enrolled interval, in a process of its own: its memory is
    freed when it ends. Failures are logged and tried again later and later. Returns at once if
    another process does so already."""
    chance = chance or random.SystemRandom()
    folder = fetch_folder(store)
    with (folder / "agent").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        failures = 0
        while True:
            period = float(read_settings(store).period_seconds)
            sleep(waits(failures, 0.0, period, chance))
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            failures = failures + 1 if done.returncode else 0
            if failures:
                log.warning("%s", short(done.stdout or done.stderr, 500))

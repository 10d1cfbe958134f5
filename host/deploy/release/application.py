"""Applications: packs a user's folder into a release and reports its state on the board."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgekit.device.runtime.agent.application import (
    FOLDER,
    MOST_CORE,
    MOST_FILES,
    MOST_SECONDS,
    REAL_TIME,
    ApplicationSpec,
)
from edgekit.device.runtime.agent.manifest import (
    MANIFEST,
    RUNTIME,
    SIGNATURE,
    FileEntry,
    parse_manifest,
)
from edgekit.device.runtime.agent.specs import safe_path
from edgekit.device.runtime.errors import DeviceError
from edgekit.device.version import VERSION
from edgekit.host.common.content import Content
from edgekit.host.common.files import read_file
from edgekit.host.compiler.options import Task
from edgekit.host.deploy.bundle import Bundle, runtime_pyz, sign_bundle
from edgekit.host.deploy.bundle.sign import known_key
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.runtime import QUICK_SECONDS, BoardCalls, check_name
from edgekit.host.deploy.release.types import ApplicationState
from edgekit.host.errors import InputError, TransferError
from edgekit.kb.decoding import convert

SETTINGS = "app.toml"
MOST_BYTES = 64 << 20
_PROGRAMS = (b"\x7fELF", b"#!")
_START_SECONDS = 60  # a small board may take as long to import an application's modules


@dataclass(frozen=True)
class Application:
    """The manifest's application entry and file list; bytes are keyed by their paths in a
    release."""

    spec: ApplicationSpec
    entries: tuple[FileEntry, ...]
    files: Mapping[str, Content]
    task: Task = "auto"


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of app.toml."""

    entry: str = "main.py"
    arguments: tuple[str, ...] = ()
    watchdog_seconds: int = 60
    memory_mib: int = 0
    priority: Annotated[int, msgspec.Meta(ge=-20, le=19)] = 0
    cores: tuple[Annotated[int, msgspec.Meta(ge=0, le=MOST_CORE)], ...] = ()
    scheduler: Literal["", "batch", "idle", "fifo", "rr"] = ""
    task: Task = "auto"


def read_application(folder: Path) -> Application:
    """Reads the application in `folder`: all files except hidden ones and compiled Python.

    The application is named after the folder. InputError describes what is wrong with it.
    """
    name = folder.resolve().name
    if folder.is_file():
        raise InputError(
            f"{folder}: expected the folder of an application, found a file; make one and put the "
            "program there: edgekit app new serve"
        )
    check_name(name)
    settings = _load_settings(folder)
    files = dict(_release_files(folder))
    entry = f"{FOLDER}/{settings.entry}"
    if entry not in files:
        raise InputError(
            f"{folder}: expected the program {settings.entry}, found none; write it, or name "
            f"another as entry in {SETTINGS}"
        )
    if not entry.endswith(".py") and not files[entry].startswith(_PROGRAMS):
        raise InputError(
            f"{folder / settings.entry}: expected Python in a file that ends in .py, or a program "
            "(ELF, or a script with #!), found neither; name another "
            f"as entry in {SETTINGS}"
        )
    memory = settings.memory_mib << 20
    spec = ApplicationSpec(
        name,
        entry,
        settings.arguments,
        settings.watchdog_seconds,
        memory,
        tuple(sorted(files)),
        settings.priority,
        tuple(sorted(set(settings.cores))),
        settings.scheduler,
    )
    entries = tuple(map(_file_entry, files, files.values()))
    return Application(spec, entries, files, settings.task)


def with_application(bundle: Bundle, application: Application) -> Bundle:
    """Replaces the bundle's application, if any, with this one and signs it again."""
    return sign_bundle(unsigned_with(bundle, application))


def unsigned_with(bundle: Bundle, application: Application) -> Bundle:
    """Does the same without signing."""
    if bundle.manifest.kit_version != VERSION:
        raise InputError(
            f"expected a model that this edgekit ({VERSION}) compiled, found one compiled by "
            f"{bundle.manifest.kit_version}, whose runtime may not support applications; compile "
            "it again"
        )
    before = bundle.manifest.application
    runtime = runtime_pyz(kernels=bundle.manifest.kernels is not None)
    gone = {RUNTIME, *application.spec.files, *(before.files if before else ())}
    entries = [entry for entry in bundle.manifest.files if entry.path not in gone]
    entries += [*application.entries, _file_entry(RUNTIME, runtime)]
    manifest = replace(
        bundle.manifest,
        application=application.spec,
        files=tuple(sorted(entries, key=lambda entry: entry.path)),
    ).with_id()
    try:
        checked = parse_manifest(manifest.to_json())
    except DeviceError as error:
        raise InputError(f"{SETTINGS}: {str(error).partition(';')[0]}") from None
    files = LayeredFiles({RUNTIME: runtime}, LayeredFiles(application.files, bundle.files))
    return Bundle(checked, files)


def deployed_application(board: BoardCalls, current: str | None = None) -> Application | None:
    """Returns the deployed application, or None; InputError if this host did not sign the release.

    `current` is the release's id, if known.
    """
    instead = "install the application with the model, or leave it out: --no-application"
    manifest = deployed_bundle(board, instead, current).manifest
    spec = manifest.application
    if spec is None:  # the board has just rolled back from a damaged release
        return None
    entries = tuple(map(manifest.file, spec.files))
    return Application(spec, entries, _OnBoard(board.name, spec.files, instead))


def deployed_bundle(
    board: BoardCalls,
    instead: str = "name the model after the folder",
    current: str | None = None,
) -> Bundle:
    """Returns the deployed bundle without file contents, which stay on the board.

    Raises InputError if nothing is deployed, or if this host did not sign it, because then it must
    not sign it with other contents either; the message suggests `instead`. The board is asked for
    the current release unless `current` is given.
    """
    if current is None:
        found = board.call("status", "--quick")["current"]
        current = found and found["id"]
    if current is None:
        raise InputError(
            f"board '{board.name}': expected a deployed model, found none; deploy one, or name "
            "one after the folder"
        )
    folder = f"{board.root}/releases/{current}".removeprefix("./")
    try:
        data = board.transport.get(f"{folder}/{MANIFEST}", deadline=QUICK_SECONDS)
        signature = board.transport.get(f"{folder}/{SIGNATURE}", deadline=QUICK_SECONDS)
        manifest = parse_manifest(data)
    except (TransferError, DeviceError) as error:
        raise _not_ours(board.name, str(error).partition(";")[0], instead) from None
    key = known_key()
    own = key and sign_bundle(Bundle(manifest, {}), key).signature
    # Signatures are deterministic, so comparing with our own is as good as verifying.
    if own != signature or manifest.to_json() != data or manifest.id != current:
        raise _not_ours(board.name, "one of another", instead)
    names = [entry.path for entry in manifest.files]
    return Bundle(manifest, _OnBoard(board.name, names, instead), signature)


def start_application(board: BoardCalls) -> ApplicationState:
    """Starts the deployed application and waits until it reports ready."""
    seconds = str(_START_SECONDS)
    deadline = QUICK_SECONDS + _START_SECONDS
    return _parse_state(board.call("app-start", "--seconds", seconds, deadline=deadline))


def stop_application(board: BoardCalls) -> ApplicationState:
    """Stops the application until it is started again."""
    return _parse_state(board.call("app-stop"))


def application_status(board: BoardCalls) -> ApplicationState:
    """Returns the application's state."""
    return _parse_state(board.call("app-status"))


def application_log(board: BoardCalls, lines: int) -> tuple[str, ...]:
    """Returns the last `lines` lines of the application's output."""
    found = board.call("app-log", "--lines", str(lines))
    return tuple(found["lines"])


def _parse_state(found: Document) -> ApplicationState:
    names = [field.name for field in fields(ApplicationState)]
    return ApplicationState(**{name: found[name] for name in names if name in found})


class LayeredFiles(Mapping[str, Content]):
    """Files layered over a bundle's."""

    def __init__(self, over: Mapping[str, Content], under: Mapping[str, Content]) -> None:
        self._over, self._under = over, under

    def __getitem__(self, name: str) -> Content:
        return self._over[name] if name in self._over else self._under[name]

    def __iter__(self) -> Iterator[str]:
        return iter({*self._over, *self._under})

    def __len__(self) -> int:
        return len({*self._over, *self._under})


class _OnBoard(Mapping[str, bytes]):
    """Files that the board already has, so their contents must not be requested."""

    def __init__(self, board: str, names: Sequence[str], instead: str) -> None:
        self._board, self._names, self._instead = board, names, instead

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        raise TransferError(
            f"board '{self._board}': {name}: expected an intact copy there, found it damaged; "
            f"{self._instead}"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _load_settings(folder: Path) -> _Settings:
    file = folder / SETTINGS
    try:
        found = convert(tomllib.loads(read_file(file).decode()), _Settings)
    except FileNotFoundError:
        raise InputError(
            f"{folder}: expected an application with {SETTINGS}, found none; make one: "
            "edgekit app new serve"
        ) from None
    except NotADirectoryError:
        raise InputError(f"{folder}: expected a folder, found a file; name its folder") from None
    except OSError as error:
        raise InputError(f"{file}: expected a readable file, found: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{file}: expected the keys of an application, found: {error}") from None
    for key, most in (("watchdog_seconds", MOST_SECONDS), ("memory_mib", 1 << 20)):
        if not 0 <= getattr(found, key) <= most:
            raise InputError(f"{file}: {key}: expected 0 to {most}, found {getattr(found, key)}")
    if found.scheduler in REAL_TIME and found.priority > 0:
        raise InputError(
            f"{file}: priority: expected -20 to 0 for the scheduler {found.scheduler}, found "
            f"{found.priority}"
        )
    return found


def _release_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields paths in the release and bytes; InputError if there are too many or they are too
    large."""
    room, count = MOST_BYTES, 0
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in inner.parts)
        if hidden or path.is_dir() or str(inner) == SETTINGS:
            continue
        name = f"{FOLDER}/{inner.as_posix()}"
        if not path.is_file() or not safe_path(name):
            raise InputError(
                f"{path}: expected files with names of letters, digits, '.', '_' and '-', at most "
                "3 folders deep, found another; rename it or move it out of the application"
            )
        count, room = count + 1, room - path.stat().st_size
        if count > MOST_FILES or room < 0:
            raise InputError(
                f"{folder}: expected an application of at most {MOST_FILES} files and "
                f"{MOST_BYTES} bytes, found more; move what it does not need out of the folder"
            )
        yield name, path.read_bytes()


def _file_entry(path: str, data: bytes) -> FileEntry:
    return FileEntry(path, len(data), hashlib.sha256(data).hexdigest())


def _not_ours(board: str, found: str, instead: str) -> InputError:
    return InputError(
        f"board '{board}': expected a release with a signature of this host, found {found}; "
        f"{instead}"
    )

"""The model in a bundle of MediaPipe that finds what its other models are about."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from edgekit.host.common.files import atomic_write
from edgekit.host.compiler.inputs.metadata import BAD_ARCHIVE
from edgekit.host.errors import InputError

BUNDLE_OF_MODELS = ".task"
_MODEL, _FINDS, _FOLLOWS = ".tflite", "detector", "landmark"
_DEPTH = 2  # of bundles in bundles: gesture_recognizer.task has hand_landmarker.task
_MOST_BYTES = 1 << 28


def finder_of(path: Path, cache: Path) -> tuple[Path, tuple[str, ...]] | None:
    """The detector of a bundle, or its only model, as a file in the cache, and the names of the
    other models; None for any other file. Raises InputError if it cannot be read or written."""
    if path.suffix.lower() != BUNDLE_OF_MODELS or not zipfile.is_zipfile(path):
        return None
    try:
        with path.open("rb") as file:
            models = _models(file, _DEPTH)
    except BAD_ARCHIVE as error:
        raise InputError(
            f"{path}: expected a bundle of MediaPipe, found one that is damaged ({error}); "
            "fetch it again"
        ) from error
    finders = [name for name in models if _FINDS in name and _FOLLOWS not in name]
    chosen = finders if len(models) > 1 else [*models]
    if len(chosen) != 1:
        return None
    (name,) = chosen
    made = cache / "parts" / hashlib.sha256(models[name]).hexdigest() / name
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(made, models[name])
    except OSError as error:
        raise InputError(f"{made}: expected to write {name} of {path.name}, {error}") from error
    return made, tuple(other for other in models if other != name)


def _models(file: BinaryIO, depth: int) -> dict[str, bytes]:
    """The models by their names, without folders; those of bundles inside, too."""
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            name = PurePosixPath(entry.filename).name
            is_bundle = name.endswith(BUNDLE_OF_MODELS)
            if not (is_bundle or name.endswith(_MODEL)):
                continue
            if entry.file_size > _MOST_BYTES:
                raise ValueError(f"{name} of {entry.file_size} bytes")
            with archive.open(entry) as member:
                if not is_bundle:
                    found[name] = member.read(_MOST_BYTES)
                elif depth > 1:
                    found |= _models(member, depth - 1)  # type: ignore[arg-type]
    return found

"""Compiles models into bundles and keeps these, so that an unchanged model starts no compiler.

A bundle names the SHA-256 of each of its files, and its id is a hash of its manifest, so a damaged
one is noticed when it is read. It is then compiled again, as is one that another process removed.
"""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgekit.host.common.checked_files import WORK, in_use
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.build_key import build_key, hash_parts
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.deploy import explanations
from edgekit.host.deploy.bundle import Bundle, build_bundle
from edgekit.host.errors import InputError
from edgekit.kb.decoding import decode_json
from edgekit.kb.targets.board import BoardProfile

MOST_BYTES = 1 << 30  # of all bundles together; the least recently used ones are removed
_ABOUT = ".json"
_BUNDLE = ".ekb"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompiledBundle:
    """An unsigned bundle, and what the compiler has to say about it. `explained`: the content of
    `compile --explain`, None for a bundle from the cache."""

    bundle: Bundle
    notes: tuple[str, ...]
    explained: Mapping[str, Any] | None = None


def compiled(
    model: Path,
    board: BoardProfile,
    options: CompileOptions,
    counter: int = 0,
    explain: bool = False,
    busy: AbstractContextManager[None] | None = None,
) -> CompiledBundle:
    """Returns the bundle of a model, from the cache if nothing changed that it depends on, unless
    it is to be explained. `busy` is entered while the compiler runs.

    Raises InputError for a model that cannot be read or does not fit the board, BuildError if the
    C compiler fails.
    """
    key = bundle_key(model, board, options, counter)
    kept = None if explain else recall(key)
    if kept and explanations.renew(kept.bundle.manifest.id):
        return kept
    with busy or nullcontext():
        made = compile_now(model, board, options, counter)
    explanations.remember(made.bundle.manifest.id, made.explained or {})
    if bundle_key(model, board, options, counter) == key:  # nothing was edited in the meantime
        remember(key, made)
    return made


def compile_now(
    model: Path,
    board: BoardProfile,
    options: CompileOptions,
    counter: int = 0,
    cache: Path | None = None,
) -> CompiledBundle:
    """Compiles a model and keeps nothing but objects and golden vectors, in `cache`."""
    from edgekit.host.compiler.driver import compile_variants
    from edgekit.host.compiler.explain import explained_variants

    first, *others = compile_variants(model, board, cache, options)
    explained = explained_variants(first, others)
    accounts = (each["nna"] for each in (explained, *explained.get("variants", ())))
    lines = itertools.chain(*map(explanations.nna_lines, accounts))
    notes = dict.fromkeys(text for each in (first, *others) for text in each.notes)
    bundle = build_bundle(first, board, counter, others)
    return CompiledBundle(bundle, (*notes, *(f"NNA: {line}" for line in lines)), explained)


def bundle_key(model: Path, board: BoardProfile, options: CompileOptions, counter: int = 0) -> str:
    """Equal keys mean equal bundles."""
    return hash_parts(build_key(model, board, options), str(counter))


class _About(msgspec.Struct, forbid_unknown_fields=True):
    release: str
    notes: tuple[str, ...]


def recall(key: str, mark_used: bool = True) -> CompiledBundle | None:
    """The bundle stored under a key; None if there is none, or if it is damaged."""
    about, file = _paths(key)
    try:
        found = decode_json(about.read_bytes(), _About)
        bundle = Bundle.read(file)
        if mark_used:
            os.utime(file)
    except (OSError, msgspec.MsgspecError, InputError) as error:
        _LOG.debug("no bundle: %s", error)
        return None
    return CompiledBundle(bundle, found.notes) if bundle.manifest.id == found.release else None


def remember(key: str, made: CompiledBundle, most_bytes: int = MOST_BYTES) -> None:
    """Keeps a bundle. A full or read-only disk is not an error: the bundle is compiled again."""
    about, file = _paths(key)
    content = msgspec.json.encode(_About(made.bundle.manifest.id, made.notes))
    try:
        with in_use(file.parent), tempfile.TemporaryDirectory(prefix=WORK, dir=file.parent) as work:
            new = Path(work) / file.name
            made.bundle.write(new)
            new.replace(file)
            (Path(work) / about.name).write_bytes(content)
            (Path(work) / about.name).replace(about)  # last: it says that the bundle is there
            _remove_oldest(file.parent, most_bytes)
    except (OSError, InputError) as error:
        _LOG.info("could not keep the bundle of %s: %s", made.bundle.manifest.model.name, error)


def _remove_oldest(folder: Path, most_bytes: int) -> None:
    with os.scandir(folder) as entries:
        uses = [(entry.stat(), entry.path) for entry in entries if entry.name.endswith(_BUNDLE)]
    for status, path in sorted(uses, key=lambda use: use[0].st_mtime, reverse=True):
        most_bytes -= status.st_size
        if most_bytes < 0:
            Path(path).with_suffix(_ABOUT).unlink(missing_ok=True)
            Path(path).unlink(missing_ok=True)


def _paths(key: str) -> tuple[Path, Path]:
    folder = cache_folder() / "bundles"
    return folder / f"{key}{_ABOUT}", folder / f"{key}{_BUNDLE}"

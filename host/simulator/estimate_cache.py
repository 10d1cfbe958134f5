"""Caches estimates: the same release on the same core always takes the same cycles.

For a model that was estimated before, neither the compiler nor the emulator is started if none of
its inputs changed. Detecting that takes well under a second, since the model is not parsed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.build_key import hash_parts, kit_digest
from edgekit.host.simulator.emulator import emulator_name
from edgekit.host.simulator.model import ModelEstimate
from edgekit.host.simulator.own_qemu import kept_emulator
from edgekit.kb.decoding import decode_json
from edgekit.kb.targets.board import BoardProfile


def recall(key: str, board: BoardProfile, threads: int) -> ModelEstimate | None:
    """The cached estimate for `key`, which identifies a release or the inputs of one."""
    try:
        content = _cache_path(key, board, threads).read_bytes()
        return decode_json(content, ModelEstimate)
    except (OSError, msgspec.MsgspecError):
        return None


def remember(key: str, board: BoardProfile, threads: int, made: ModelEstimate) -> None:
    """Caches an estimate."""
    path = _cache_path(key, board, threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, msgspec.json.encode(made))


def _cache_path(key: str, board: BoardProfile, threads: int) -> Path:
    """The cache path, which also covers the rest: edgekit, including its core models, and QEMU."""
    program = emulator_name(board.arch)
    tools = (_file_stamp(path) for path in (shutil.which(program), kept_emulator(program)) if path)
    name = hash_parts(key, repr(board), str(threads), *tools, kit_digest())
    return cache_folder() / "estimates" / f"{name}.json"


def _file_stamp(path: str | Path) -> str:
    about = Path(path).stat()
    return f"{path} {about.st_size} {about.st_mtime_ns}"

"""Caches estimates: the same release on the same core always takes the same cycles.

For a model that was estimated before, neither the compiler nor the emulator is started if none of
its inputs changed. Detecting that takes well under a second, since the model is not parsed.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder, data_folder
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.simulator.emulator import emulator_name
from edgekit.host.simulator.model import ModelEstimate
from edgekit.host.simulator.own_qemu import kept_emulator
from edgekit.kb.targets.board import BoardProfile

_TABLES = ("cost", "gemm", "layouts", "orders", "spmv")  # folders of the user's own measurements
_ROOMS = ("host", "kb", "device")
_SUFFIXES = (".py", ".c", ".h", ".toml", ".json", ".bin")


def model_key(model: Path, board: BoardProfile, options: CompileOptions) -> str:
    """Identifies the model, the board, the options, their samples and the user's tables."""
    tables = (_folder_digest(data_folder() / name) for name in _TABLES)
    shown = (_samples_digest(options.samples),) if options.samples else ()
    return _hash_parts(_model_hash(model), repr(board), repr(options), *shown, *tables)


def recall(key: str, board: BoardProfile, threads: int) -> ModelEstimate | None:
    """The cached estimate for `key`, which identifies a release or the inputs of one."""
    try:
        content = _cache_path(key, board, threads).read_bytes()
        return msgspec.json.decode(content, type=ModelEstimate)
    except (OSError, msgspec.MsgspecError):
        return None


def remember(key: str, board: BoardProfile, threads: int, made: ModelEstimate) -> None:
    """Caches an estimate."""
    path = _cache_path(key, board, threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, msgspec.json.encode(made))


def _cache_path(key: str, board: BoardProfile, threads: int) -> Path:
    """The cache path, which also covers the rest: the kit, including its core models, and QEMU."""
    import edgekit

    rooms = [(Path(p) / room).resolve() for p in edgekit.__path__ for room in _ROOMS]
    program = emulator_name(board.arch)
    tools = (_file_stamp(path) for path in (shutil.which(program), kept_emulator(program)) if path)
    name = _hash_parts(key, repr(board), str(threads), *tools, *map(_folder_digest, rooms))
    return cache_folder() / "estimates" / f"{name}.json"


def _file_stamp(path: str | Path) -> str:
    about = Path(path).stat()
    return f"{path} {about.st_size} {about.st_mtime_ns}"


def _model_hash(model: Path) -> str:
    """The hash of a .tflite file; models in other formats may consist of several files."""
    if model.suffix == ".tflite":
        with model.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    from edgekit.host.compiler.frontends import model_hash

    return model_hash(model)


def _samples_digest(path: Path) -> str:
    """A digest of the names, sizes and times of a file, or of everything below a folder."""
    return _hash_parts(
        *(_file_stamp(p.resolve()) for p in (path, *sorted(path.rglob("*"))) if p.exists())
    )


def _folder_digest(folder: Path) -> str:
    """A digest of the names, sizes and times of the files below a folder."""
    digest = hashlib.sha256(str(folder).encode())
    for path in sorted(folder.rglob("*")):
        if path.suffix in _SUFFIXES:
            about = path.stat()
            digest.update(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _hash_parts(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()

"""Reads model files from disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgekit.host.errors import InputError

_NODE_LIMIT = 1 << 14  # of a graph in a file: importing more takes longer than any user waits
_OPERAND_LIMIT = 1 << 12  # of an operator: its handler may emit a node for each
_SIZE_LIMIT = 2 << 30
_LARGEST_FILE = 1 << 62
_START = 64
_CHUNK = 1 << 20


def read_model_file(path: Path) -> bytes:
    """The content of a model file. Raises `InputError` if it is missing or too large."""
    return _read(path, _SIZE_LIMIT)


def read_start(path: Path) -> bytes:
    """The first bytes of a file, whatever its size. Raises `InputError` if it is missing."""
    return _read(path, _START, _LARGEST_FILE)


def check_size(path: Path) -> None:
    """Raises `InputError` if a model file is missing or too large."""
    _read(path, _START)


def chunks_of_model_file(path: Path) -> Iterator[bytes]:
    """The content of a model file, part by part. Raises `InputError` like `read_model_file`."""
    check_size(path)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise InputError(f"{path}: expected a readable file, found: {error.strerror}") from error


def _read(path: Path, count: int, most: int = _SIZE_LIMIT) -> bytes:
    try:
        if path.is_dir():
            raise InputError(f"{path}: expected a model file, found a directory")
        if not path.is_file():
            raise InputError(f"{path}: expected a model file, found nothing; check the path")
        size = path.stat().st_size
        if size > most:
            raise InputError(f"{path}: expected at most {most} bytes, found {size}")
        with path.open("rb") as file:
            content = file.read(min(count, size))  # Python allocates what it is asked for
    except OSError as error:
        raise InputError(f"{path}: expected a readable file, found: {error.strerror}") from error
    if not content:
        raise InputError(f"{path}: expected a model, found an empty file; fetch it again")
    return content


def check_nodes(count: int) -> None:
    """Refuses a graph that would take minutes to import, before it is read."""
    if count > _NODE_LIMIT:
        raise InputError(
            f"expected at most {_NODE_LIMIT:,} operators, found {count:,}; compile it in parts"
        )


def check_operands(inputs: int, outputs: int) -> None:
    """Refuses an operator that would take minutes to import, before it is read."""
    if max(inputs, outputs) > _OPERAND_LIMIT:
        raise InputError(
            f"expected at most {_OPERAND_LIMIT:,} inputs and outputs of an operator, found "
            f"{inputs:,} and {outputs:,}; join parts of them first"
        )

"""The files that say which virtual boards are up, and the locks that guard them."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import data_folder
from edgekit.host.virtual import process
from edgekit.host.virtual.types import RunningBoard

_SCHEMA = "edgekit.virtual/1"


@dataclass(frozen=True)
class Record:
    """A board's process from its first moment; `board` only when it is up."""

    pid: int
    mark: str
    control: Path
    board: RunningBoard | None = None
    schema: str = _SCHEMA


def record_path(name: str) -> Path:
    """The path of a board's record; beside it, its lock and QEMU's last words."""
    return data_folder() / "boards" / "virtual" / f"{name}.json"


def write_record(name: str, record: Record) -> None:
    """Replaces the record as a whole."""
    import msgspec

    path = record_path(name)
    text = msgspec.json.format(msgspec.json.encode(record, enc_hook=str), indent=2)
    atomic_write(path, text + b"\n")


def read_record(name: str) -> Record | None:
    """The record of a board whose process is alive; None if there is none or it is stale."""
    record = _stored(name)
    if record is None or process.start_mark(record.pid) != record.mark:
        return None
    return record


def clear_record(name: str) -> None:
    """Ends what is left of a board, and forgets it. The caller has the board's lock."""
    record = _stored(name)
    if record is not None:
        process.kill(record.pid, record.mark)
        shutil.rmtree(record.control, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record_path(name))  # noqa: PTH108


def _stored(name: str) -> Record | None:
    """The record on disk; one of another kit's making counts as none."""
    import msgspec

    def path_of(kind: type, value: Any) -> Any:
        return kind(value) if kind is Path else value

    try:
        data = record_path(name).read_bytes()
        record = msgspec.json.decode(data, type=Record, dec_hook=path_of)
    except (OSError, msgspec.DecodeError):
        return None
    return record if record.schema == _SCHEMA else None

"""State files of running virtual boards, and the locks that protect them."""

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
from edgekit.kb.decoding import decode_json

_SCHEMA = "edgekit.virtual/1"


@dataclass(frozen=True)
class MachineRecord:
    """A board's process, recorded as soon as it starts; `board` is set once it is up."""

    pid: int
    mark: str
    control: Path
    board: RunningBoard | None = None
    schema: str = _SCHEMA


def record_path(name: str) -> Path:
    """The path of a board's record; its lock and QEMU's log are in the same folder."""
    return data_folder() / "boards" / "virtual" / f"{name}.json"


def write_record(name: str, record: MachineRecord) -> None:
    """Replaces the record atomically."""
    import msgspec

    path = record_path(name)
    text = msgspec.json.format(msgspec.json.encode(record, enc_hook=str), indent=2)
    atomic_write(path, text + b"\n")


def read_record(name: str) -> MachineRecord | None:
    """The record of a board whose process is alive; None if there is none or it is stale."""
    record = _load_record(name)
    if record is None or process.start_mark(record.pid) != record.mark:
        return None
    return record


def clear_record(name: str) -> None:
    """Kills what is left of a board and deletes its record. The caller holds the board's lock."""
    record = _load_record(name)
    if record is not None:
        process.kill(record.pid, record.mark)
        shutil.rmtree(record.control, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record_path(name))  # noqa: PTH108


def _load_record(name: str) -> MachineRecord | None:
    """The record on disk; None if it was written by an incompatible version."""
    import msgspec

    def path_of(kind: type, value: Any) -> Any:
        return kind(value) if kind is Path else value

    try:
        data = record_path(name).read_bytes()
        record = decode_json(data, MachineRecord, path_of)
    except (OSError, msgspec.DecodeError):
        return None
    return record if record.schema == _SCHEMA else None

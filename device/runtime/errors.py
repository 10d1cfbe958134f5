"""Errors of the board's runtime; each is sent to the host as {"error": {"kind", "message"}}.

    DeviceError
    ├── InputError          2  input          invalid argument, array or manifest
    ├── IncompatibleError   5  incompatible   this board cannot run that library
    │   └── TooLittleMemoryError                temporary: other programs may free memory
    ├── TransferError       6  transfer       files missing, damaged or not writable
    ├── BusyError           6  busy           another deploy holds the lock
    └── RolledBackError     7  rolled_back    the new release was unhealthy, the old one is back

Every message is one line: what was expected, what was found, what to do next.
"""

from __future__ import annotations

import errno
from typing import Any, Dict, Optional, Tuple, Union

Document = Dict[str, Any]


class DeviceError(Exception):
    """Base of all deliberate errors; `exit_code` is the process's, `kind` the document's.

    `details` are added to the document for programs that need to act on the error.
    """

    exit_code = 1
    kind = "bug"

    def __init__(self, message: str, **details: str) -> None:
        super().__init__(message)
        self.details = details


class InputError(DeviceError):
    exit_code = 2
    kind = "input"


class IncompatibleError(DeviceError):
    exit_code = 5
    kind = "incompatible"


class TooLittleMemoryError(IncompatibleError):
    """Too little free memory at the moment; unlike other resources of a board, it varies over
    time."""


class TransferError(DeviceError):
    exit_code = 6
    kind = "transfer"


class BusyError(DeviceError):
    exit_code = 6
    kind = "busy"


class RolledBackError(DeviceError):
    exit_code = 7
    kind = "rolled_back"


class UnhealthyError(Exception):
    """The health check failed: `str` is the reason, `log` its last lines of output."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.log = log


def error_document(kind: str, message: str, details: Optional[Dict[str, str]] = None) -> Document:
    """Builds the error document for the host."""
    return {"error": {"kind": kind, "message": " ".join(message.split()), **(details or {})}}


def system_error_document(error: Union[ImportError, OSError]) -> Tuple[Document, int]:
    """Builds the error document and exit code for a file or disk error, or for a module that this
    Python lacks."""
    if isinstance(error, ImportError):
        text = f"expected Python with its standard library, found: {error}; install all of python3"
        return error_document("incompatible", text), 5
    where = f"{error.filename}: " if error.filename else ""
    found = error.strerror or error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = f"{where}expected free disk space, found: {found}; free some space on the board"
        return error_document("incompatible", text), 5
    if error.errno == errno.EROFS:
        text = f"{where}expected a disk that can be written, found: {found}; mount it writable"
        return error_document("incompatible", text), 5
    return error_document("transfer", f"{where}expected to read or write it, found {found}"), 6

"""An SFTP server (version 3) for boards that have none: the part of it that edgekit's client uses.

The host sends this file to the board's Python, which runs it from memory with the requests on
standard input. Its client has a shell on the board, so paths are not confined to a folder.
"""

from __future__ import annotations

import errno
import itertools
import os
import struct
from pathlib import Path
from typing import BinaryIO, Callable, Dict, Iterator, List

_INIT, _VERSION = 1, 2
_OPEN, _CLOSE, _READ, _WRITE = 3, 4, 5, 6
_FSTAT, _OPENDIR, _READDIR, _REMOVE, _MKDIR, _STAT = 8, 11, 12, 13, 14, 17
_STATUS, _HANDLE, _DATA, _NAME, _ATTRIBUTES = 101, 102, 103, 104, 105
_EXTENDED = 200

_OK, _END_OF_FILE, _NO_SUCH_FILE, _FAILURE, _UNSUPPORTED = 0, 1, 2, 4, 8
_HAS_SIZE, _HAS_TIMES = 1, 8
_MOST_NAMES = 1000  # in an answer
_RENAME, _SYNC = b"posix-rename@openssh.com", b"fsync@openssh.com"


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers the packets of `requests` in order, until it ends."""
    server = _Server()
    while len(head := requests.read(4)) == 4:
        packet = requests.read(struct.unpack(">I", head)[0])
        if not packet:
            return
        body = server.answer(packet[0], _Fields(packet[1:]))
        answers.write(struct.pack(">I", len(body)) + body)
        answers.flush()


class _Fields:
    """The fields of a request, one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def take(self, size: int) -> bytes:
        found, self._body = self._body[:size], self._body[size:]
        return found


class _Server:
    """The open files and folders of a session."""

    def __init__(self) -> None:
        self._files: Dict[bytes, int] = {}
        self._names: Dict[bytes, Iterator[str]] = {}
        self._handles = itertools.count()
        self._actions: Dict[int, Callable[[_Fields], bytes]] = {
            _OPEN: self._open,
            _CLOSE: self._close,
            _READ: self._read,
            _WRITE: self._write,
            _FSTAT: lambda fields: _attributes(os.fstat(self._files[fields.string()])),
            _STAT: lambda fields: _attributes(_path(fields).stat()),
            _OPENDIR: self._open_folder,
            _READDIR: self._list_names,
            _REMOVE: self._remove,
            _MKDIR: self._make_folder,
            _EXTENDED: self._extended,
        }

    def answer(self, kind: int, fields: _Fields) -> bytes:
        """Returns the body of the answer to a request."""
        if kind == _INIT:
            known = b"".join(_text(name) + _text(b"1") for name in (_RENAME, _SYNC))
            return struct.pack(">BI", _VERSION, 3) + known
        number = fields.take(4)
        action = self._actions.get(kind)
        try:
            found = action(fields) if action else _status(_UNSUPPORTED)
        except FileNotFoundError as error:
            found = _status(_NO_SUCH_FILE, error.strerror or "")
        except OSError as error:
            found = _status(_FAILURE, error.strerror or os.strerror(errno.EIO))
        return found[:1] + number + found[1:]

    def _new_handle(self) -> bytes:
        return b"%d" % next(self._handles)

    def _open(self, fields: _Fields) -> bytes:
        path, wanted = fields.string(), fields.number()
        flags = os.O_CLOEXEC | (os.O_RDWR if wanted & 3 == 3 else os.O_WRONLY if wanted & 2 else 0)
        for bit, flag in ((8, os.O_CREAT), (32, os.O_EXCL)):
            flags |= flag if wanted & bit else 0
        handle = self._new_handle()
        self._files[handle] = os.open(path, flags, 0o600)
        return bytes([_HANDLE]) + _text(handle)

    def _close(self, fields: _Fields) -> bytes:
        handle = fields.string()
        self._names.pop(handle, None)
        if handle in self._files:
            os.close(self._files.pop(handle))
        return _status(_OK)

    def _read(self, fields: _Fields) -> bytes:
        file, offset, size = self._files[fields.string()], fields.number(8), fields.number()
        data = os.pread(file, size, offset)
        return bytes([_DATA]) + _text(data) if data else _status(_END_OF_FILE)

    def _write(self, fields: _Fields) -> bytes:
        file, offset, data = self._files[fields.string()], fields.number(8), fields.string()
        left = memoryview(data)
        while left:
            count = os.pwrite(file, left, offset)
            offset, left = offset + count, left[count:]
        return _status(_OK)

    def _remove(self, fields: _Fields) -> bytes:
        _path(fields).unlink()
        return _status(_OK)

    def _make_folder(self, fields: _Fields) -> bytes:
        _path(fields).mkdir(0o700)
        return _status(_OK)

    def _open_folder(self, fields: _Fields) -> bytes:
        handle = self._new_handle()
        self._names[handle] = iter([path.name for path in _path(fields).iterdir()])
        return bytes([_HANDLE]) + _text(handle)

    def _list_names(self, fields: _Fields) -> bytes:
        found: List[str] = list(itertools.islice(self._names[fields.string()], _MOST_NAMES))
        if not found:
            return _status(_END_OF_FILE)
        rows = b"".join(_text(os.fsencode(name)) * 2 + struct.pack(">I", 0) for name in found)
        return struct.pack(">BI", _NAME, len(found)) + rows

    def _extended(self, fields: _Fields) -> bytes:
        name = fields.string()
        if name == _RENAME:
            source, target = _path(fields), _path(fields)
            source.replace(target)
            return _status(_OK)
        if name == _SYNC:
            os.fsync(self._files[fields.string()])
            return _status(_OK)
        return _status(_UNSUPPORTED)


def _path(fields: _Fields) -> Path:
    return Path(os.fsdecode(fields.string()))


def _status(code: int, message: str = "") -> bytes:
    text = _text(message.encode()) + _text(b"")
    return struct.pack(">BI", _STATUS, code) + text


def _attributes(found: os.stat_result) -> bytes:
    times = struct.pack(">II", int(found.st_atime) & 0xFFFFFFFF, int(found.st_mtime) & 0xFFFFFFFF)
    head = struct.pack(">BIQ", _ATTRIBUTES, _HAS_SIZE | _HAS_TIMES, found.st_size)
    return head + times


def _text(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value

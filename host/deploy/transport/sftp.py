"""A minimal SFTP (version 3) client for transports, over any open channel.

Paramiko's own client keeps a hundred writes in flight and counts bytes when they are sent. Here a
write counts once the board has acknowledged it, and only as many are in flight as keep the link
busy: this bounds the loss when a link is cut, and every wait has a deadline. Answers are untrusted:
type, fields and sizes are checked before use.
"""

from __future__ import annotations

import math
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from edgekit.host.common.text import printable

CHUNK = 32768  # bytes per request; every server accepts this many

NO_SUCH_FILE = 2
_OK, _END_OF_FILE = 0, 1

_INIT, _VERSION = 1, 2
_OPEN, _CLOSE, _READ, _WRITE = 3, 4, 5, 6
_FSTAT, _OPENDIR, _READDIR, _REMOVE, _MKDIR, _STAT = 8, 11, 12, 13, 14, 17
_STATUS, _HANDLE, _DATA, _NAME, _ATTRIBUTES = 101, 102, 103, 104, 105
_EXTENDED = 200

READ, WRITE, CREATE, EXCLUSIVE = 1, 2, 8, 32
_HAS_SIZE, _HAS_OWNER, _HAS_MODE, _HAS_TIMES = 1, 2, 4, 8
_LARGEST_ANSWER = 1 << 20
_LONGEST_HANDLE = 256
_MOST_ANSWERS = 1000  # about one folder, of a hundred names each with OpenSSH
_SHOWN = 200  # characters of a server message
_MOST_UNANSWERED = 64
_TRIED = 4  # answers before the minimum round trip is trusted
_SERVED_SECONDS = 0.005  # of a round trip: processing at both ends, with nothing on the wire


class SftpChannel(Protocol):
    """The part of a paramiko channel's interface that is used."""

    def sendall(self, data: bytes) -> None: ...
    def recv(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class SftpError(Exception):
    """The server refused a request; `code` is the protocol's status code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(printable(message, _SHOWN) or f"status {code}")
        self.code = code


class SftpEndedError(Exception):
    """The channel ended."""


class NotSftpError(Exception):
    """The data received violates the protocol."""


@dataclass(frozen=True)
class FileFacts:
    """Size in bytes and modification time in seconds."""

    size: int
    changed: int


class Sftp:
    """One session; paths are relative to `root`. NotSftpError if the server cannot see that folder.

    Raises the errors above and the channel's own.
    """

    def __init__(self, channel: SftpChannel, root: str) -> None:
        self._channel = channel
        self._root = root
        self._received = bytearray()
        self._number = 0
        self._send_packet(_INIT, struct.pack(">I", 3))
        kind, body = self._receive_packet()
        if kind != _VERSION:
            raise NotSftpError(f"expected SFTP's version, found answer {kind}")
        self._extensions = _parse_extensions(_Fields(body))
        if not self._is_there(root):
            raise NotSftpError(
                f"expected the folder {printable(root, _SHOWN)} over SFTP, found none, though "
                "commands see it: is the SFTP server confined to another folder?"
            )

    def close(self) -> None:
        self._channel.close()

    def open(self, path: str, flags: int) -> bytes:
        """Opens a file and returns its handle; new files are private."""
        attributes = struct.pack(">II", _HAS_MODE, 0o600)
        return self._request_handle(
            _OPEN, self._encode_path(path), struct.pack(">I", flags), attributes
        )

    def close_file(self, handle: bytes) -> None:
        self._request_status(_CLOSE, _pack_bytes(handle))

    def facts(self, handle: bytes) -> FileFacts:
        facts = _parse_attributes(self._request(_ATTRIBUTES, _FSTAT, _pack_bytes(handle)))
        if facts is None:
            raise NotSftpError("expected the size of a file from SFTP, found none")
        return facts

    def sync(self, handle: bytes) -> None:
        """Flushes the file to disk, if the server supports it."""
        if "fsync@openssh.com" in self._extensions:
            self._request_status(_EXTENDED, _pack_text("fsync@openssh.com"), _pack_bytes(handle))

    def rename(self, source: str, target: str) -> None:
        """Renames atomically, replacing `target`."""
        paths = (self._encode_path(source), self._encode_path(target))
        self._request_status(_EXTENDED, _pack_text("posix-rename@openssh.com"), *paths)

    def make_folder(self, path: str) -> None:
        self._request_status(_MKDIR, self._encode_path(path), struct.pack(">II", _HAS_MODE, 0o700))

    def remove(self, path: str) -> None:
        self._request_status(_REMOVE, self._encode_path(path))

    def names(self, folder: str) -> list[str]:
        """Lists a folder; empty if it does not exist."""
        try:
            handle = self._request_handle(_OPENDIR, self._encode_path(folder))
        except SftpError as error:
            if error.code != NO_SUCH_FILE:
                raise
            return []
        found: list[str] = []
        try:
            for _ in range(_MOST_ANSWERS):
                found += _parse_names(self._request(_NAME, _READDIR, _pack_bytes(handle)))
        except SftpError as error:
            if error.code != _END_OF_FILE:
                raise
            self.close_file(handle)
            return found
        raise NotSftpError(f"expected SFTP to finish listing {folder}, found an endless list")

    def write(
        self, handle: bytes, data: memoryview, start: int, written: Callable[[int], None]
    ) -> None:
        """Writes data[start:] at `start`; calls `written` with each new acknowledged length."""
        window = _Window()
        waiting: deque[_Request] = deque()
        offset = start
        failure: SftpError | None = None
        while waiting or (offset < len(data) and failure is None):
            if offset < len(data) and len(waiting) < window.size and failure is None:
                pending = _Request(offset, min(CHUNK, len(data) - offset), time.monotonic())
                offset += pending.size
                head = struct.pack(">Q", pending.offset)
                chunk = _pack_bytes(data[pending.offset : offset])
                waiting.append(
                    pending.numbered(self._send_request(_WRITE, _pack_bytes(handle), head, chunk))
                )
                continue
            pending = waiting.popleft()
            try:
                self._receive_answer(pending.number, _STATUS)
            except SftpError as error:
                failure = failure or error  # the answers in flight must still be read
                continue
            if failure is None:
                window.answered(pending, pending.size)
                written(pending.offset + pending.size)
        if failure is not None:
            raise failure

    def read(self, handle: bytes, start: int, size: int, got: Callable[[bytes], None]) -> None:
        """Passes the bytes from `start` to `size` or the end of the file to `got`, in order."""
        window = _Window()
        waiting: deque[_Request] = deque()
        offset, wanted = start, start
        failure: SftpError | None = None
        while waiting or (offset < size and failure is None):
            if offset < size and len(waiting) < window.size and failure is None:
                pending = _Request(offset, min(CHUNK, size - offset), time.monotonic())
                offset += pending.size
                request = struct.pack(">QI", pending.offset, pending.size)
                waiting.append(
                    pending.numbered(self._send_request(_READ, _pack_bytes(handle), request))
                )
                continue
            pending = waiting.popleft()
            try:
                chunk = self._receive_answer(pending.number, _DATA).string()
            except SftpError as error:
                failure = failure or error
                continue
            if len(chunk) > pending.size:
                raise NotSftpError(
                    f"expected at most {pending.size} bytes from SFTP, found {len(chunk)}"
                )
            if failure is not None or pending.offset != wanted:
                continue  # requested before a short answer arrived: it will be requested again
            window.answered(pending, len(chunk))
            wanted += len(chunk)
            if len(chunk) < pending.size:
                offset = wanted if chunk else size
            got(chunk)
        if failure is not None and failure.code != _END_OF_FILE:
            raise failure

    def _is_there(self, path: str) -> bool:
        try:
            self._request(_ATTRIBUTES, _STAT, _pack_text(path))
        except SftpError as error:
            if error.code != NO_SUCH_FILE:
                raise
            return False
        return True

    def _encode_path(self, path: str) -> bytes:
        return _pack_text(f"{self._root}/{path}")

    def _request_handle(self, kind: int, *fields: bytes) -> bytes:
        handle = self._request(_HANDLE, kind, *fields).string()
        if not 0 < len(handle) <= _LONGEST_HANDLE:
            raise NotSftpError(f"expected a handle from SFTP, found one of {len(handle)} bytes")
        return handle

    def _request_status(self, kind: int, *fields: bytes) -> None:
        self._request(_STATUS, kind, *fields)

    def _request(self, expected: int, kind: int, *fields: bytes) -> _Fields:
        return self._receive_answer(self._send_request(kind, *fields), expected)

    def _send_request(self, kind: int, *fields: bytes) -> int:
        self._number += 1
        self._send_packet(kind, struct.pack(">I", self._number), *fields)
        return self._number

    def _receive_answer(self, number: int, expected: int) -> _Fields:
        """Returns the body of the answer of type `expected`; raises SftpError for an error status.

        Servers answer in request order.
        """
        kind, body = self._receive_packet()
        fields = _Fields(body)
        found = fields.number()
        if found != number:
            raise NotSftpError(f"expected SFTP's answer to request {number}, found {found}")
        if kind == _STATUS:
            code = fields.number()
            if code != _OK:
                raise SftpError(code, fields.text() if fields.more else "")
        if kind != expected:
            raise NotSftpError(f"expected SFTP's answer {expected}, found {kind}")
        return fields

    def _send_packet(self, kind: int, *fields: bytes) -> None:
        body = b"".join(fields)
        self._channel.sendall(struct.pack(">IB", len(body) + 1, kind) + body)

    def _receive_packet(self) -> tuple[int, bytes]:
        self._fill_buffer(4)
        length = struct.unpack_from(">I", self._received)[0]
        if not 0 < length <= _LARGEST_ANSWER:
            raise NotSftpError("expected SFTP, found other output: does a login script print it?")
        self._fill_buffer(4 + length)
        packet = bytes(self._received[4 : 4 + length])
        del self._received[: 4 + length]
        return packet[0], packet[1:]

    def _fill_buffer(self, size: int) -> None:
        while len(self._received) < size:
            more = self._channel.recv(1 << 17)
            if not more:
                raise SftpEndedError("expected an answer, found the end of the session")
            self._received += more


@dataclass(frozen=True)
class _Request:
    """A request for a part of a file, sent at the time `at`."""

    offset: int
    size: int
    at: float
    number: int = 0

    def numbered(self, number: int) -> _Request:
        return replace(self, number=number)


class _Window:
    """The number of requests in flight: two, plus as many as the wire itself holds.

    The minimum round trip approximates the wire's latency. Bytes that the link carries in that time
    are on the wire, not queued in the board's buffers, where a cut would lose them.
    """

    def __init__(self) -> None:
        self.size = 2
        self._round_trip = math.inf
        self._seen: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def answered(self, pending: _Request, count: int) -> None:
        now, total = time.monotonic(), self._seen[-1][1] + count
        self._round_trip = min(self._round_trip, now - pending.at)
        self._seen.append((now, total))
        while self._seen[0][0] < now - max(4 * self._round_trip, 0.1) and len(self._seen) > 2:
            self._seen.popleft()
        since, before = self._seen[0]
        if len(self._seen) > _TRIED:
            wire = max(self._round_trip - _SERVED_SECONDS, 0)
            carried = (total - before) / (now - since) * wire
            self.size = min(2 + int(carried / CHUNK), _MOST_UNANSWERED)


def _pack_bytes(value: bytes | memoryview) -> bytes:
    return struct.pack(">I", len(value)) + value


def _pack_text(value: str) -> bytes:
    return _pack_bytes(value.encode("utf-8", "surrogateescape"))


class _Fields:
    """Decodes the fields of an answer one by one; rejects a truncated field."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    @property
    def more(self) -> bool:
        return self._at < len(self._body)

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self._take_bytes(size), "big")

    def string(self) -> bytes:
        return self._take_bytes(self.number())

    def text(self) -> str:
        return self.string().decode("utf-8", "surrogateescape")

    def _take_bytes(self, size: int) -> bytes:
        left = len(self._body) - self._at
        if size > left:
            raise NotSftpError(f"expected {size} bytes more in SFTP's answer, found {left}")
        self._at += size
        return self._body[self._at - size : self._at]


def _parse_extensions(fields: _Fields) -> frozenset[str]:
    fields.number()  # the version: the same for every server
    found = []
    while fields.more:
        found.append(fields.text())
        fields.string()
    return frozenset(found)


def _parse_attributes(fields: _Fields) -> FileFacts | None:
    """None if the attributes do not include the size."""
    flags = fields.number()
    size = fields.number(8) if flags & _HAS_SIZE else None
    if flags & _HAS_OWNER:
        fields.number(8)
    if flags & _HAS_MODE:
        fields.number()
    changed = fields.number(8) & 0xFFFFFFFF if flags & _HAS_TIMES else 0
    return None if size is None else FileFacts(size, changed)


def _parse_names(fields: _Fields) -> list[str]:
    found = []
    for _ in range(fields.number()):
        name = fields.text()
        fields.string()  # the `ls -l` form
        _parse_attributes(fields)
        if "/" in name or "\0" in name:
            raise NotSftpError(f"expected the name of a file from SFTP, found {name[:_SHOWN]!r}")
        found.append(name)
    return found

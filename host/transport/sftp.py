"""The few parts of SFTP (version 3) that a transport needs, over any open channel.

Paramiko's own client keeps a hundred unanswered writes under way and counts bytes when they are
sent. Here a write counts when the board has answered it, and only as many are under way as keep
the link busy: what a cut link costs is bounded, and every wait has an end.
"""

from __future__ import annotations

import math
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

CHUNK = 32768  # bytes per request; every server takes as much

NO_SUCH_FILE = 2
_OK, _END_OF_FILE = 0, 1

_INIT, _VERSION = 1, 2
_OPEN, _CLOSE, _READ, _WRITE = 3, 4, 5, 6
_FSTAT, _OPENDIR, _READDIR, _REMOVE, _MKDIR = 8, 11, 12, 13, 14
_STATUS, _HANDLE, _DATA, _NAME, _ATTRIBUTES = 101, 102, 103, 104, 105
_EXTENDED = 200

READ, WRITE, CREATE, EXCLUSIVE = 1, 2, 8, 32
_HAS_SIZE, _HAS_OWNER, _HAS_MODE, _HAS_TIMES = 1, 2, 4, 8
_LARGEST_ANSWER = 1 << 20
_MOST_UNANSWERED = 64
_TRIED = 4  # answers before any of them is believed to be the shortest
_SERVED_SECONDS = 0.005  # of a round trip: the ends' own time, in which nothing is on the wire


class Channel(Protocol):
    """What is used of a paramiko channel."""

    def sendall(self, data: bytes) -> None: ...
    def recv(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class SftpError(Exception):
    """The server refused a request; `code` as in the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message or f"status {code}")
        self.code = code


class SftpEndedError(Exception):
    """The channel ended."""


class NotSftpError(Exception):
    """What came over the channel was something else."""


@dataclass(frozen=True)
class FileFacts:
    """Size in bytes and time of the last change in seconds."""

    size: int
    changed: int


class Sftp:
    """One session. Raises the errors above and what the channel raises."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._received = bytearray()
        self._number = 0
        self._send(_INIT, struct.pack(">I", 3))
        kind, body = self._receive()
        if kind != _VERSION:
            raise NotSftpError(f"expected SFTP's version, found {bytes(body[:40])!r}")
        self._extensions = _extensions(body[4:])

    def close(self) -> None:
        self._channel.close()

    def open(self, path: str, flags: int) -> bytes:
        """A handle; files that are made are private."""
        attributes = struct.pack(">II", _HAS_MODE, 0o600)
        return self._handle(_OPEN, _text(path), struct.pack(">I", flags), attributes)

    def close_file(self, handle: bytes) -> None:
        self._call(_CLOSE, _bytes(handle))

    def facts(self, handle: bytes) -> FileFacts:
        return _facts(self._call(_FSTAT, _bytes(handle)))

    def sync(self, handle: bytes) -> None:
        """Asks for the file to be on the disk, where the server can be asked that."""
        if "fsync@openssh.com" in self._extensions:
            self._call(_EXTENDED, _text("fsync@openssh.com"), _bytes(handle))

    def rename(self, source: str, target: str) -> None:
        """Replaces what is at `target` at once."""
        self._call(_EXTENDED, _text("posix-rename@openssh.com"), _text(source), _text(target))

    def make_folder(self, path: str) -> None:
        self._call(_MKDIR, _text(path), struct.pack(">II", _HAS_MODE, 0o700))

    def remove(self, path: str) -> None:
        self._call(_REMOVE, _text(path))

    def names(self, folder: str) -> Iterator[str]:
        """What is in a folder; nothing if there is no such folder."""
        try:
            handle = self._handle(_OPENDIR, _text(folder))
        except SftpError as error:
            if error.code != NO_SUCH_FILE:
                raise
            return
        try:
            while True:
                yield from _names(self._call(_READDIR, _bytes(handle)))
        except SftpError as error:
            if error.code != _END_OF_FILE:
                raise
        finally:
            self.close_file(handle)

    def write(
        self, handle: bytes, data: memoryview, start: int, written: Callable[[int], None]
    ) -> None:
        """Writes data[start:] at `start`; `written` is told each time how far the file reaches."""
        window = _Window()
        waiting: deque[_Asked] = deque()
        offset = start
        failure: SftpError | None = None
        while waiting or (offset < len(data) and failure is None):
            if offset < len(data) and len(waiting) < window.size and failure is None:
                asked = _Asked(offset, min(CHUNK, len(data) - offset), time.monotonic())
                offset += asked.size
                head = struct.pack(">Q", asked.offset)
                chunk = _bytes(data[asked.offset : offset])
                waiting.append(asked.numbered(self._ask(_WRITE, _bytes(handle), head, chunk)))
                continue
            asked = waiting.popleft()
            try:
                self._answer(asked.number)
            except SftpError as error:
                failure = failure or error  # the answers under way are still to be taken
                continue
            if failure is None:
                window.answered(asked, asked.size)
                written(asked.offset + asked.size)
        if failure is not None:
            raise failure

    def read(self, handle: bytes, start: int, size: int, got: Callable[[bytes], None]) -> None:
        """Hands what is from `start` up to `size` or the file's end to `got`, in order."""
        window = _Window()
        waiting: deque[_Asked] = deque()
        offset, wanted = start, start
        failure: SftpError | None = None
        while waiting or (offset < size and failure is None):
            if offset < size and len(waiting) < window.size and failure is None:
                asked = _Asked(offset, min(CHUNK, size - offset), time.monotonic())
                offset += asked.size
                request = struct.pack(">QI", asked.offset, asked.size)
                waiting.append(asked.numbered(self._ask(_READ, _bytes(handle), request)))
                continue
            asked = waiting.popleft()
            try:
                chunk = _take_bytes(self._answer(asked.number), 0)[0]
            except SftpError as error:
                failure = failure or error
                continue
            if failure is not None or asked.offset != wanted:
                continue  # asked for before a short answer came: it is asked for again
            window.answered(asked, len(chunk))
            wanted += len(chunk)
            if len(chunk) < asked.size:
                offset = wanted if chunk else size
            got(chunk)
        if failure is not None and failure.code != _END_OF_FILE:
            raise failure

    def _handle(self, kind: int, *fields: bytes) -> bytes:
        return _take_bytes(self._call(kind, *fields), 0)[0]

    def _call(self, kind: int, *fields: bytes) -> bytes:
        return self._answer(self._ask(kind, *fields))

    def _ask(self, kind: int, *fields: bytes) -> int:
        self._number += 1
        self._send(kind, struct.pack(">I", self._number), *fields)
        return self._number

    def _answer(self, number: int) -> bytes:
        """The body of the answer; servers answer in the order they were asked."""
        kind, body = self._receive()
        found = struct.unpack_from(">I", body)[0] if len(body) >= 4 else None
        if found != number:
            raise NotSftpError(f"expected the answer to request {number}, found {found}")
        rest = bytes(body[4:])
        if kind == _STATUS:
            code = struct.unpack_from(">I", rest)[0]
            if code != _OK:
                raise SftpError(code, _take_bytes(rest, 4)[0].decode("utf-8", "replace"))
        return rest

    def _send(self, kind: int, *fields: bytes) -> None:
        body = b"".join(fields)
        self._channel.sendall(struct.pack(">IB", len(body) + 1, kind) + body)

    def _receive(self) -> tuple[int, bytearray]:
        self._fill(4)
        length = struct.unpack_from(">I", self._received)[0]
        if not 0 < length <= _LARGEST_ANSWER:
            text = bytes(self._received[:60])
            raise NotSftpError(f"expected SFTP, found {text!r}: does a login script print that?")
        self._fill(4 + length)
        packet = self._received[4 : 4 + length]
        del self._received[: 4 + length]
        return packet[0], packet[1:]

    def _fill(self, size: int) -> None:
        while len(self._received) < size:
            more = self._channel.recv(1 << 17)
            if not more:
                raise SftpEndedError("expected an answer, found the end of the session")
            self._received += more


@dataclass(frozen=True)
class _Asked:
    """A request for a part of a file, sent at the time `at`."""

    offset: int
    size: int
    at: float
    number: int = 0

    def numbered(self, number: int) -> _Asked:
        return replace(self, number=number)


class _Window:
    """How many requests may be unanswered: two, and as many as fit into the wire itself.

    The shortest time that any answer took is that of the wire. What the link carries in that time
    is under way, not waiting in the board's buffers, where a cut would lose it.
    """

    def __init__(self) -> None:
        self.size = 2
        self._round_trip = math.inf
        self._seen: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def answered(self, asked: _Asked, count: int) -> None:
        now, total = time.monotonic(), self._seen[-1][1] + count
        self._round_trip = min(self._round_trip, now - asked.at)
        self._seen.append((now, total))
        while self._seen[0][0] < now - max(4 * self._round_trip, 0.1) and len(self._seen) > 2:
            self._seen.popleft()
        since, before = self._seen[0]
        if len(self._seen) > _TRIED:
            wire = max(self._round_trip - _SERVED_SECONDS, 0)
            carried = (total - before) / (now - since) * wire
            self.size = min(2 + int(carried / CHUNK), _MOST_UNANSWERED)


def _bytes(value: bytes | memoryview) -> bytes:
    return struct.pack(">I", len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode("utf-8", "surrogateescape"))


def _take_bytes(body: bytes, at: int) -> tuple[bytes, int]:
    """A string of the protocol at `at`, and where the next field begins."""
    if len(body) < at + 4:
        return b"", len(body)
    end = at + 4 + int(struct.unpack_from(">I", body, at)[0])
    return body[at + 4 : end], end


def _extensions(body: bytearray) -> frozenset[str]:
    found, at, data = [], 0, bytes(body)
    while at < len(data):
        name, at = _take_bytes(data, at)
        _, at = _take_bytes(data, at)
        found.append(name.decode("utf-8", "replace"))
    return frozenset(found)


def _facts(body: bytes) -> FileFacts:
    flags = struct.unpack_from(">I", body)[0]
    at = 4
    size = changed = 0
    if flags & _HAS_SIZE:
        size = struct.unpack_from(">Q", body, at)[0]
        at += 8
    at += 8 * bool(flags & _HAS_OWNER) + 4 * bool(flags & _HAS_MODE)
    if flags & _HAS_TIMES:
        changed = struct.unpack_from(">I", body, at + 4)[0]
    return FileFacts(size, changed)


def _names(body: bytes) -> list[str]:
    found, at = [], 4
    for _ in range(struct.unpack_from(">I", body)[0]):
        name, at = _take_bytes(body, at)
        _, at = _take_bytes(body, at)
        found.append(name.decode("utf-8", "surrogateescape"))
        flags = struct.unpack_from(">I", body, at)[0]
        at += 4 + 8 * bool(flags & _HAS_SIZE) + 8 * bool(flags & _HAS_OWNER)
        at += 4 * bool(flags & _HAS_MODE) + 8 * bool(flags & _HAS_TIMES)
    return found

"""A disk that loses its write cache: an NBD server for QEMU, on a Unix socket.

The cache holds all guest writes since the last flush. `cut` keeps a random subset of them, in order
or reordered, as a real disk may on power loss; the rest is lost.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path

_OPTION_MAGIC, _REPLY_MAGIC = b"IHAVEOPT", 0x3E889045565A9
_REQUEST_MAGIC, _ANSWER_MAGIC = 0x25609513, 0x67446698
_REQUEST = struct.Struct(">LHHQQL")
_FIXED_NEWSTYLE, _NO_ZEROES = 1, 2
_HAS_FLAGS, _SEND_FLUSH, _SEND_FUA, _SEND_ZEROES = 1, 4, 8, 64
_OPT_EXPORT_NAME, _OPT_ABORT, _OPT_INFO, _OPT_GO = 1, 2, 6, 7
_REP_ACK, _REP_INFO, _REP_UNSUPPORTED = 1, 3, (1 << 31) + 1
_READ, _WRITE, _DISCONNECT, _FLUSH, _ZEROES = 0, 1, 2, 3, 6
_FUA = 1
_EIO, _EINVAL = 5, 22
_SECTOR = 512


@dataclass
class VolatileDisk:
    """`file` holds the durable data; QEMU opens `address`."""

    file: Path
    address: Path
    flushes: int = 0
    lost_sectors: int = 0
    kept_sectors: int = 0
    _cache: dict[int, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _online: bool = True

    def __post_init__(self) -> None:
        self._safe = os.open(self.file, os.O_RDWR)
        self._size = os.fstat(self._safe).st_size
        self.address.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.address))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"nbd:unix:{self.address}"

    def cut(self, rng: random.Random) -> None:
        """Cut the power: only some of the unflushed writes survive."""
        with self._lock:
            self._online = False
            share = rng.choice((0.0, 0.1, 0.5, 0.9))
            for sector, data in self._cache.items():
                if rng.random() < share:
                    os.pwrite(self._safe, data, sector * _SECTOR)
                    self.kept_sectors += 1
                else:
                    self.lost_sectors += 1
            self._cache.clear()

    def plug_in(self) -> None:
        """Restore the power."""
        self._online = True

    def close(self) -> None:
        self._listener.close()
        os.close(self._safe)
        self.address.unlink(missing_ok=True)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            if self._agree(connection):
                while self._answer(connection):
                    pass

    def _agree(self, connection: socket.socket) -> bool:
        """Run the handshake; return whether requests follow."""
        flags = _HAS_FLAGS | _SEND_FLUSH | _SEND_FUA | _SEND_ZEROES
        export = struct.pack(">QH", self._size, flags)
        connection.sendall(b"NBDMAGIC" + _OPTION_MAGIC + struct.pack(">H", _FIXED_NEWSTYLE | 2))
        _take(connection, 4)
        while True:
            magic, option, length = struct.unpack(">8sLL", _take(connection, 16))
            assert magic == _OPTION_MAGIC
            _take(connection, length)
            if option == _OPT_EXPORT_NAME:
                connection.sendall(export)
                return True
            if option in (_OPT_INFO, _OPT_GO):
                _reply(connection, option, _REP_INFO, struct.pack(">H", 0) + export)
                _reply(connection, option, _REP_ACK)
                if option == _OPT_GO:
                    return True
            elif option == _OPT_ABORT:
                _reply(connection, option, _REP_ACK)
                return False
            else:
                _reply(connection, option, _REP_UNSUPPORTED)

    def _answer(self, connection: socket.socket) -> bool:
        request = _REQUEST.unpack(_take(connection, _REQUEST.size))
        magic, flags, kind, handle, offset, length = request
        assert magic == _REQUEST_MAGIC
        if kind == _DISCONNECT:
            return False
        data = _take(connection, length) if kind == _WRITE else b""
        error, answer = 0, b""
        with self._lock:
            if not self._online:
                return False
            if kind == _READ:
                answer = self._read(offset, length)
            elif kind == _WRITE:
                self._write(offset, data)
            elif kind == _ZEROES:
                self._write(offset, bytes(length))
            elif kind != _FLUSH:
                error = _EINVAL
            if kind == _FLUSH or flags & _FUA:
                self._flush()
        connection.sendall(struct.pack(">LLQ", _ANSWER_MAGIC, error, handle) + answer)
        return True

    def _read(self, offset: int, length: int) -> bytes:
        data = bytearray(os.pread(self._safe, length, offset))
        first = offset // _SECTOR
        for sector in range(first, (offset + length + _SECTOR - 1) // _SECTOR):
            if cached := self._cache.get(sector):
                at = sector * _SECTOR - offset
                data[at : at + _SECTOR] = cached
        return bytes(data)

    def _write(self, offset: int, data: bytes) -> None:
        assert offset % _SECTOR == 0
        for at in range(0, len(data), _SECTOR):
            self._cache[(offset + at) // _SECTOR] = data[at : at + _SECTOR]

    def _flush(self) -> None:
        self.flushes += 1
        for sector, data in self._cache.items():
            os.pwrite(self._safe, data, sector * _SECTOR)
        self._cache.clear()


def _reply(connection: socket.socket, option: int, kind: int, data: bytes = b"") -> None:
    connection.sendall(struct.pack(">QLLL", _REPLY_MAGIC, option, kind, len(data)) + data)


def _take(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data

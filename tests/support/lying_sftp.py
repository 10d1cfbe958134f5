"""An in-process SSH server whose SFTP is correct except for one injected false reply."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

INIT, OPEN, CLOSE, READ, WRITE, FSTAT = 1, 3, 4, 5, 6, 8
OPENDIR, READDIR, REMOVE, MKDIR, STAT, EXTENDED = 11, 12, 13, 14, 17, 200
VERSION, STATUS, HANDLE, DATA, NAME, ATTRS = 2, 101, 102, 103, 104, 105
CONTENT = b"what the file holds " * 10


def packet(kind: int, body: bytes) -> bytes:
    return struct.pack(">IB", len(body) + 1, kind) + body


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def string(value: bytes) -> bytes:
    return number(len(value)) + value


def status(id_: bytes, code: int, message: bytes = b"") -> bytes:
    return packet(STATUS, id_ + number(code) + string(message) + string(b""))


# Maps a request's type and id (four bytes) to a false reply, None to answer truthfully, or b"" to
# end the session.
Lie = Callable[[int, bytes], bytes | None]


@dataclass
class LyingServer:
    """Commands start in `home`; all files contain CONTENT."""

    home: Path
    port: int = 0
    key: paramiko.PKey = field(default_factory=lambda: paramiko.ECDSAKey.generate())
    lie: Lie = lambda kind, id_: None

    @property
    def host_key(self) -> str:
        return f"{self.key.get_name()} {self.key.get_base64()}"

    def serve(self, channel: paramiko.Channel) -> None:
        """Serve SFTP on one channel until it closes."""
        received = b""
        names_left = 1
        with contextlib.suppress(OSError, EOFError):
            while True:
                while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                    more = channel.recv(1 << 16)
                    if not more:
                        return
                    received += more
                end = 4 + int.from_bytes(received[:4], "big")
                kind, id_, received = received[4], received[5:9], received[end:]
                answer = self.lie(kind, id_)
                if answer is None:
                    if kind == READDIR:
                        answer = self._names(id_) if names_left else status(id_, 1)
                        names_left = 0
                    else:
                        answer = self._truth(kind, id_)
                if not answer:
                    channel.close()
                    return
                channel.sendall(answer)

    def _truth(self, kind: int, id_: bytes) -> bytes:
        if kind == INIT:
            names = (b"posix-rename@openssh.com", b"fsync@openssh.com")
            return packet(VERSION, number(3) + b"".join(string(n) + string(b"1") for n in names))
        if kind in (OPEN, OPENDIR):
            return packet(HANDLE, id_ + string(b"h"))
        if kind in (FSTAT, STAT):
            return packet(ATTRS, id_ + number(1) + struct.pack(">Q", len(CONTENT)))
        return packet(DATA, id_ + string(CONTENT)) if kind == READ else status(id_, 0)

    def _names(self, id_: bytes) -> bytes:
        return packet(NAME, id_ + number(1) + string(b"other") + string(b"-") + number(0))


class _Interface(paramiko.ServerInterface):
    def __init__(self, server: LyingServer) -> None:
        self._server = server

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command), daemon=True).start()
        return True

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        threading.Thread(target=self._server.serve, args=(channel,), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: bytes) -> None:
        home = {**os.environ, "HOME": str(self._server.home)}
        pipe = subprocess.PIPE
        with subprocess.Popen(
            ["sh", "-c", command], env=home, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            pumps = (
                threading.Thread(target=_pump, args=(channel.recv, process.stdin.write)),
                threading.Thread(target=_pump, args=(process.stderr.read, channel.sendall_stderr)),
            )
            for pump in pumps:
                pump.daemon = True
                pump.start()
            _pump(process.stdout.read, channel.sendall)
            pumps[1].join()
        with contextlib.suppress(OSError):
            channel.send_exit_status(process.returncode)
            channel.close()


def _pump(read: Callable[[int], bytes], write: Callable[[bytes], object]) -> None:
    with contextlib.suppress(OSError, ValueError):  # an end was closed
        while data := read(1 << 16):
            write(data)


@contextlib.contextmanager
def lying_server(home: Path) -> Iterator[LyingServer]:
    server = LyingServer(home)
    connections: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.port = listening.getsockname()[1]

        def accept() -> None:
            with contextlib.suppress(OSError):  # channel closed: the test is over
                while True:
                    transport = paramiko.Transport(listening.accept()[0])
                    connections.append(transport)
                    transport.add_server_key(server.key)
                    transport.start_server(server=_Interface(server))

        threading.Thread(target=accept, daemon=True).start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)
    for transport in connections:
        transport.close()

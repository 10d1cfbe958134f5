"""A TCP proxy on a loopback port that counts, cuts, delays or drops traffic."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

_CHUNK = 16384


@dataclass(frozen=True)
class Fault:
    """What happens to one connection after `after` bytes in the direction `way`.

    `cut` resets it; otherwise all further data is dropped, in both directions.
    """

    after: int
    way: str = "up"  # to the server; "down": from it
    cut: bool = True


@dataclass
class Proxy:
    """Forwards to `server`; each new connection uses the next of `faults`, then none."""

    server: tuple[str, int]
    faults: list[Fault] = field(default_factory=list)
    delay: float = 0.0  # one-way latency in seconds, in each direction
    up: int = 0  # bytes that reached the server
    down: int = 0  # bytes that reached the client
    connections: int = 0
    silent: bool = False
    most_under_way: int = 0  # bytes in flight, of one connection in one direction

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        return self.up + self.down

    def silence(self) -> None:
        """From now on drop everything, including on new connections."""
        self.silent = True

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            for side in self._open:
                _reset(side)
            self._open.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            fault = self.faults.pop(0) if self.faults else None
            self.connections += 1
            try:
                server = socket.create_connection(self.server)
            except OSError:
                _reset(client)
                continue
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open += [client, server]
            link = _Connection(self, client, server, fault)
            for way in ("up", "down"):
                threading.Thread(target=link.pump, args=(way,), daemon=True).start()


class _Connection:
    def __init__(
        self, proxy: Proxy, client: socket.socket, server: socket.socket, fault: Fault | None
    ) -> None:
        self._proxy = proxy
        self._ends = {"up": (client, server), "down": (server, client)}
        self._fault = fault
        self._passed = {"up": 0, "down": 0}
        self._struck = False

    def pump(self, way: str) -> None:
        source, target = self._ends[way]
        under_way: Queue[tuple[float, bytes]] = Queue()
        threading.Thread(target=self._deliver, args=(way, target, under_way), daemon=True).start()
        taken = 0
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                taken += len(data)
                now = taken - self._passed[way]
                self._proxy.most_under_way = max(self._proxy.most_under_way, now)
                under_way.put((time.monotonic() + self._proxy.delay, data))
        under_way.put((time.monotonic() + self._proxy.delay, b""))

    def _deliver(
        self, way: str, target: socket.socket, under_way: Queue[tuple[float, bytes]]
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = under_way.get()
                time.sleep(max(due - time.monotonic(), 0))
                if not data:
                    break
                data = self._before_fault(way, data)
                target.sendall(data)
                self._count(way, len(data))
                if self._is_due(way):
                    self._strike()
        if not self._struck:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)

    def _before_fault(self, way: str, data: bytes) -> bytes:
        if self._struck or self._proxy.silent:
            return b""
        if self._fault is None or self._fault.way != way:
            return data
        return data[: max(self._fault.after - self._passed[way], 0)]

    def _is_due(self, way: str) -> bool:
        fault = self._fault
        due = fault is not None and fault.way == way and self._passed[way] >= fault.after
        return due and not self._struck

    def _strike(self) -> None:
        assert self._fault is not None
        self._struck = True
        if self._fault.cut:
            for side in self._ends["up"]:
                _reset(side)

    def _count(self, way: str, count: int) -> None:
        self._passed[way] += count
        with self._proxy._lock:
            setattr(self._proxy, way, getattr(self._proxy, way) + count)


@contextlib.contextmanager
def running_proxy(host: str, port: int, *faults: Fault, delay: float = 0.0) -> Iterator[Proxy]:
    proxy = Proxy((host, port), list(faults), delay)
    try:
        yield proxy
    finally:
        proxy.close()


@contextlib.contextmanager
def http_proxy() -> Iterator[tuple[int, list[str]]]:
    """A proxy for HTTPS, as in companies: its port, and the places that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append(self.path)
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as other:
                self.send_response(200)
                self.end_headers()
                sides = {self.connection: other, other: self.connection}
                while True:
                    for side in select.select(list(sides), [], [])[0]:
                        data = side.recv(_CHUNK)
                        if not data:
                            return
                        sides[side].sendall(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port on which connect() neither succeeds nor fails, because its backlog is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def _reset(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        side.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        side.close()

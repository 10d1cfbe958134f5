"""Receives profiles from enrolled boards over HTTPS, with limits on size and rate.

POST /v1/boards/<board>/profiles, `Authorization: Bearer <token>`, the body a compressed stream of
batches. Status 200 means that all of it is durable, or already was. A board that gets no response
sends the same again; the store removes duplicates.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from edgekit.host.errors import EdgekitError, TransferError
from edgekit.host.fleet.profiles.bus import Bus
from edgekit.host.fleet.profiles.certificate import certificate, server_context
from edgekit.host.fleet.profiles.store import ProfileStore, Stored
from edgekit.host.fleet.profiles.tokens import Tokens

_log = logging.getLogger(__name__)

_MOST_BODY = 1 << 20
_MOST_STREAM = 8 << 20  # unpacked
_MOST_CONNECTIONS = 64  # concurrent; excess ones are closed and retry later
_CONNECTION_SECONDS = 600.0  # total, so that a slow client cannot hold a connection forever
_SILENT_SECONDS = 30.0
_REQUESTS = 120  # burst size per board, then one per
_REQUEST_SECONDS = 5.0
_COMPACT_EVERY = 32
_PATH = re.compile(r"/v1/boards/([A-Za-z0-9_][A-Za-z0-9._-]{0,63})/profiles")
_BEARER = re.compile(r"Bearer ([0-9a-f]{64})")
_LENGTH = re.compile(r"[0-9]{1,18}")


def tokens_of(store: ProfileStore) -> Tokens:
    """The tokens of the boards that may send to a store."""
    return Tokens(store.folder / "tokens.json")


def certificate_of(store: ProfileStore) -> tuple[Path, str]:
    """The path of the store's server certificate, and its SHA-256."""
    path = store.folder / "server.pem"
    return path, certificate(path)


class ProfileServer(ThreadingHTTPServer):
    """Listens on `address`; runs `serve_forever` until `shutdown`. Keeps the store at about
    `most_bytes` or less, which it checks after `compact_every` streams. With a `bus`, batches are
    published to it for writers, and only unreadable ones are stored here."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        store: ProfileStore,
        address: tuple[str, int],
        clock: Callable[[], float] = time.monotonic,
        most_bytes: int | None = None,
        bus: Bus | None = None,
        compact_every: int = _COMPACT_EVERY,
    ) -> None:
        self.store = store
        self._bus = bus
        self._most_bytes = most_bytes
        self._compact_every = compact_every
        self.tokens = tokens_of(store)
        self.rates = _Rates(clock)
        self._context = server_context(certificate_of(store)[0])
        self._clock = clock
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._until: dict[socket.socket, float] = {}
        self._adds = 0
        super().__init__(address, _Handler)

    def store_stream(self, board: str, stream: bytes) -> Stored:
        """Stores a stream durably; occasionally compacts small files and deletes old ones."""
        if self._bus is not None:
            return self.store.hand_over(board, stream, self._bus)
        stored = self.store.add(board, stream)
        with self._lock:
            self._adds += 1
            compacts = self._adds % self._compact_every == 0
        if compacts:
            with contextlib.suppress(OSError):
                self.store.compact()
                if self._most_bytes is not None:
                    self.store.forget(most_bytes=self._most_bytes)
        return stored

    def get_request(self) -> tuple[socket.socket, object]:
        """Accepts a connection; the TLS handshake is left to its handler thread."""
        plain, address = super().get_request()
        plain.settimeout(_SILENT_SECONDS)
        wrapped = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        return wrapped, address

    def process_request(self, request: object, client_address: object) -> None:
        assert isinstance(request, ssl.SSLSocket)
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        with self._lock:
            self._until[request] = self._clock() + _CONNECTION_SECONDS
        super().process_request(request, client_address)

    def process_request_thread(self, request: object, client_address: object) -> None:
        assert isinstance(request, ssl.SSLSocket)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._until.pop(request, None)
            self._places.release()

    def service_actions(self) -> None:
        """Closes connections that exceeded their time limit."""
        now = self._clock()
        with self._lock:
            late = [request for request, until in self._until.items() if now > until]
        for request in late:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        _log.info("profiles: a connection ended early", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: ProfileServer
    protocol_version = "HTTP/1.1"
    timeout = _SILENT_SECONDS

    def setup(self) -> None:
        self.request.do_handshake()
        super().setup()

    def do_POST(self) -> None:
        try:
            board = self._authenticate()
            stored = self.server.store_stream(board, self._read_body(board))
        except _RefusedError as refused:
            self._respond(refused.status, str(refused), refused.seconds)
        except TransferError as error:
            self._respond(HTTPStatus.BAD_REQUEST, str(error))
        except (EdgekitError, OSError) as error:
            _log.error("profiles: nothing can be stored: %s", error)
            self._respond(HTTPStatus.INSUFFICIENT_STORAGE, "cannot store now", 300)
        else:
            for why in stored.refused:
                _log.warning("profiles: board '%s': %s", board, why)
            self._respond(HTTPStatus.OK, f"{stored.new} new, {stored.known} known")

    def log_message(self, format: str, *args: object) -> None:
        _log.debug("profiles: %s", format % args)

    def version_string(self) -> str:
        return "edgekit"

    def _authenticate(self) -> str:
        """The sending board, which the token must match."""
        path = _PATH.fullmatch(self.path)
        if path is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "no such page")
        bearer = _BEARER.fullmatch(self.headers.get("Authorization", ""))
        board = self.server.tokens.board_of(bearer[1]) if bearer else None
        if board is None:
            raise _RefusedError(HTTPStatus.UNAUTHORIZED, "an unknown or revoked token")
        if board != path[1]:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "the token of another board")
        return board

    def _read_body(self, board: str) -> bytes:
        """The unpacked body."""
        length = self.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(length):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "expected Content-Length")
        if int(length) > _MOST_BODY:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {_MOST_BODY} bytes"
            )
        if wait := self.server.rates.wait(board):
            raise _RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many requests", wait)
        try:
            packed = self.rfile.read(int(length))
        except OSError:
            raise _RefusedError(HTTPStatus.REQUEST_TIMEOUT, "expected more bytes") from None
        unpacker = zlib.decompressobj()
        try:
            stream = unpacker.decompress(packed, _MOST_STREAM)
        except zlib.error:
            stream = b""
        if not unpacker.eof or not stream:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "expected compressed batches")
        return stream

    def _respond(self, status: HTTPStatus, text: str, seconds: float = 0) -> None:
        body = f"{text}\n".encode()
        if status != HTTPStatus.OK:
            self.close_connection = True  # the body may not have been read completely
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if seconds:
            self.send_header("Retry-After", str(int(seconds) + 1))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


class _RefusedError(Exception):
    """An error response; `seconds` until the board may retry."""

    def __init__(self, status: HTTPStatus, why: str, seconds: float = 0) -> None:
        super().__init__(why)
        self.status, self.seconds = status, seconds


class _Rates:
    """Rate limit per board: a burst of `_REQUESTS`, then one per `_REQUEST_SECONDS`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}  # when a board's request quota is full again

    def wait(self, board: str) -> float:
        """Counts a request and returns 0 if it is allowed now, otherwise the seconds to wait."""
        with self._lock:
            now = self._clock()
            due = max(self._due.get(board, now), now)
            ahead = due - now - (_REQUESTS - 1) * _REQUEST_SECONDS
            if ahead > 0:
                return ahead
            self._due[board] = due + _REQUEST_SECONDS
            return 0.0

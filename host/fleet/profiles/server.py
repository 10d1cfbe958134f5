"""Receives profiles from enrolled boards over HTTPS, with limits on size and rate.

POST /v1/boards/<board>/profiles, `Authorization: Bearer <token>`, the body a compressed stream of
batches. Status 200 means that all of it is durable, or already was. A board that gets no response
sends the same again; the store removes duplicates.

One thread of asyncio has all connections, so idle ones cost little; a few threads store. uvicorn
and hypercorn accept whoever connects first and only then look at limits: they cannot keep places
for boards, which is what matters here, and one kind of request needs no more of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from edgekit.host.errors import EdgekitError, TransferError
from edgekit.host.fleet.profiles.admission import ConnectionLimits, Crowd, Known, Quota
from edgekit.host.fleet.profiles.bus import Bus
from edgekit.host.fleet.profiles.certificate import certificate, replace_certificate, server_context
from edgekit.host.fleet.profiles.connection import (
    LINGER_SECONDS,
    Connection,
    linger,
    open_streams,
    read_body,
    read_head,
    send,
    unpack,
)
from edgekit.host.fleet.profiles.host_pages import HostPages
from edgekit.host.fleet.profiles.live import Rollouts
from edgekit.host.fleet.profiles.metrics import FleetMetrics
from edgekit.host.fleet.profiles.parquet import libraries
from edgekit.host.fleet.profiles.release_pages import ReleasePages
from edgekit.host.fleet.profiles.request import RefusedError, RequestHead, answer
from edgekit.host.fleet.profiles.store import ProfileStore, StoredBatches
from edgekit.host.fleet.profiles.tokens import Tokens
from edgekit.host.fleet.updates import ReleaseFolder

_log = logging.getLogger(__name__)

_MOST_BATCHES = 1024  # of a request
_REQUESTS, _REQUESTS_PER_SECOND = 120, 0.2  # of a board: at once, then
# Of a board's batches: a full spool, then 177 MB a day
_BYTES, _BYTES_PER_SECOND = 5 << 20, 2 << 10
_SMALL_STREAM = 512 << 10  # larger ones are stored one after another, as are streams of
_WORK, _WORK_PER_SECOND = 0.25, 0.05  # boards that used more CPU seconds: at once, then
_WORKERS = 16  # most of them wait for the store, which writes all waiting batches together
_SWITCH_SECONDS = 0.0005  # between threads; Python's default of 0.005 lets connections queue
_BACKLOG = 1024
_ACCEPTED = 64  # connections before others get a turn
_STRANGER_SECONDS = 0.01  # between handshakes of addresses that no board has sent from
_PACE_SECONDS = 0.001  # between all handshakes, so that other work gets on
_PAUSE_SECONDS = 0.1  # where the system has no more descriptors
_BUSY_SECONDS = 30.0
_COMPACT_EVERY = 32
_LIMITS = ConnectionLimits()


def tokens_of(store: ProfileStore) -> Tokens:
    """The tokens of the boards that may send to a store."""
    return Tokens(store.folder / "tokens.json")


def certificate_of(store: ProfileStore) -> tuple[Path, str]:
    """The path of the store's server certificate, and its SHA-256."""
    path = store.folder / "server.pem"
    return path, certificate(path)


def renew_certificate(store: ProfileStore) -> str:
    """Replaces the store's server certificate; returns its SHA-256. Boards that have not heard of
    it are still served with the one before."""
    return replace_certificate(store.folder / "server.pem")


class ProfileServer:
    """Listens on `address`; runs `serve_forever` until `shutdown`. Keeps the store at about
    `most_bytes` or less, which it checks after `compact_every` streams. With a `bus`, batches are
    published to it for writers, and only unreadable ones are stored here. /metrics and the live
    page, `front`, show `rollouts`. Boards fetch what the folder `releases` offers. OSError if it
    cannot listen."""

    def __init__(
        self,
        store: ProfileStore,
        address: tuple[str, int],
        clock: Callable[[], float] = time.monotonic,
        most_bytes: int | None = None,
        bus: Bus | None = None,
        compact_every: int = _COMPACT_EVERY,
        limits: ConnectionLimits = _LIMITS,
        rollouts: Rollouts | None = None,
        releases: ReleaseFolder | None = None,
        front: bytes = b"",
    ) -> None:
        libraries()  # takes seconds on a busy host, for which no board should wait
        self.store = store
        self.tokens = tokens_of(store)
        self._metrics = FleetMetrics(time.time)
        with contextlib.suppress(EdgekitError):  # damage, which those that read the rows report
            for summary in () if bus else store.boards():
                self._metrics.remember(summary.board, summary.last)
        self.rates = Quota(_REQUESTS, _REQUESTS_PER_SECOND, clock)
        self._bytes = Quota(_BYTES, _BYTES_PER_SECOND, clock)
        self._work_time = Quota(_WORK, _WORK_PER_SECOND, clock)
        self._bus = bus
        self._most_bytes = most_bytes
        self._compact_every = compact_every
        self._limits = limits
        self._context = server_context(certificate_of(store)[0])
        self._known = Known()
        self._queue: Crowd[Connection] = Crowd(limits.queueing, self._known)
        self._waiting: Crowd[Connection] = Crowd(limits.waiting, self._known)
        self._boards: dict[str, list[Connection]] = {}  # connections with a token
        self._working: set[str] = set()  # boards whose batches are being stored
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._adds = 0
        self._merging: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False
        self._listener = socket.create_server(address, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._workers = ThreadPoolExecutor(_WORKERS, "profiles")
        self._release_pages = ReleasePages(releases, limits, self._workers)
        self.host_pages = HostPages(
            front,
            self.tokens,
            self._metrics,
            releases.all_reports if releases else dict,
            rollouts,
            self.rates,
            limits,
            self._workers,
        )
        self._worker_of_costly = ThreadPoolExecutor(1, "profiles")
        self._worker_of_merges = ThreadPoolExecutor(1, "merging")

    def __enter__(self) -> ProfileServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve_forever(self) -> None:
        # Threads that decode give way to this one, which has all connections
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            asyncio.run(self._serve())
        finally:
            sys.setswitchinterval(interval)

    def shutdown(self) -> None:
        """Ends `serve_forever`, from any thread."""
        with self._lock:
            self._ended = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._end.set)

    def close(self) -> None:
        """Stops listening; returns when what boards have sent completely is stored."""
        self._listener.close()
        for workers in (self._workers, self._worker_of_costly, self._worker_of_merges):
            workers.shutdown()

    def store_stream(self, board: str, stream: bytes) -> StoredBatches:
        """Stores a stream durably; occasionally has small files merged and old ones deleted."""
        if self._bus is not None:
            return self.store.hand_over(board, stream, self._bus, _MOST_BATCHES)
        stored = self.store.add(board, stream, _MOST_BATCHES)
        with self._lock:
            self._adds += 1
            is_due = self._adds % self._compact_every == 0
            if is_due and (self._merging is None or self._merging.done()):
                self._merging = self._worker_of_merges.submit(self._compact)
        return stored

    def _compact(self) -> None:
        try:
            self.store.compact()
            if self._most_bytes is not None:
                self.store.forget(most_bytes=self._most_bytes)
        except (EdgekitError, OSError) as error:
            _log.error("profiles: files cannot be merged: %s", error)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_failure)
        with self._lock:
            self._end, self._arrived = asyncio.Event(), asyncio.Event()
            if self._ended:
                return
            self._loop = loop
        loop.add_reader(self._listener, self._accept)
        self._tasks.add(loop.create_task(self._admit()))
        try:
            await self._end.wait()
        finally:
            with self._lock:
                self._loop = None
            loop.remove_reader(self._listener)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for known in (False, True):
                while (queued := self._queue.take(known)) is not None:
                    queued.end()

    def _accept(self) -> None:
        """Accepts connections into the queue."""
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED):
            try:
                plain, (address, *_) = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("profiles: no connection can be accepted: %s", error)
                loop.remove_reader(self._listener)
                loop.call_later(_PAUSE_SECONDS, self._resume)
                return
            plain.setblocking(False)
            self._queue.enter(address, Connection(plain, address))
            self._arrived.set()

    async def _admit(self) -> None:
        """Starts a connection from the queue at a time, so that others get on in between."""
        loop = asyncio.get_running_loop()
        due = loop.time()  # when the next unknown client may start
        while True:
            await self._arrived.wait()
            unknown = self._queue.take(False) if loop.time() >= due else None
            connection = unknown or self._queue.take(True)
            if connection is None:
                if not self._queue:
                    self._arrived.clear()
                await asyncio.sleep(max(due - loop.time(), 0))
                continue
            if connection.is_dead():
                connection.end()
                continue
            connection.is_served = True
            self._waiting.enter(connection.address, connection)
            task = loop.create_task(self._attend(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if unknown:
                due = loop.time() + _STRANGER_SECONDS
            await asyncio.sleep(_PACE_SECONDS)

    def _resume(self) -> None:
        if self._loop is not None:
            self._loop.add_reader(self._listener, self._accept)

    async def _attend(self, connection: Connection) -> None:
        """Serves one connection."""
        writer = None
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                reader, writer = await open_streams(connection.plain, self._context)
            await self._converse(reader, writer, connection)
            writer.close()
            async with asyncio.timeout(LINGER_SECONDS):
                await writer.wait_closed()
        except (OSError, EOFError) as error:
            _log.debug("profiles: %s ended early: %r", connection.address, error)
        finally:
            if writer is not None:
                writer.transport.abort()
            self._waiting.leave(connection.address, connection)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        """Answers the requests of a connection until it ends or is refused."""
        with contextlib.ExitStack() as place:
            seconds, keeps, waits, board = self._limits.head_seconds, True, True, ""
            while keeps:
                try:
                    head = await read_head(reader, seconds)
                    if not head.is_for_boards:
                        address, hold = connection.address, partial(self._hold, connection)
                        await self.host_pages.serve(head, address, reader, writer, hold)
                        return
                    board = self._authenticate(head)
                    if wait := self.rates.wait(board):
                        raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many requests", wait)
                    if waits:
                        place.enter_context(self._hold(connection, board))
                    seconds, waits = self._limits.silent_seconds, False
                    if head.release_page:
                        await self._release_pages.serve(head, board, reader, writer)
                        self._known.add(connection.address)
                        keeps = head.keeps
                        continue
                    packed = await read_body(reader, head.length, self._limits)
                    stored = await self._work(board, packed)
                    self._known.add(connection.address)
                except RefusedError as refused:
                    if board:  # which sends too much, or nonsense
                        self._known.discard(connection.address)
                    text = answer(refused.status, str(refused), False, refused.seconds)
                    await send(writer, text, self._limits)
                    await linger(reader)
                    return
                keeps = head.keeps
                text = answer(HTTPStatus.OK, f"{stored.new} new, {stored.known} known", keeps)
                await send(writer, text, self._limits)

    def _authenticate(self, head: RequestHead) -> str:
        """The sending board, which the token must match."""
        named = head.board
        try:
            board = self.tokens.board_of(head.token) if head.token else None
        except (EdgekitError, OSError) as error:
            _log.error("profiles: no token can be checked: %s", error)
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "cannot check tokens now") from None
        if board is None:
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "an unknown or revoked token")
        if board != named:
            raise RefusedError(HTTPStatus.FORBIDDEN, "the token of another board")
        return board

    @contextlib.contextmanager
    def _hold(self, connection: Connection, board: str) -> Iterator[None]:
        """A place among the connections with a token. A board's newest connections replace its
        older ones, which it may have given up."""
        self._waiting.leave(connection.address, connection)
        own = self._boards.setdefault(board, [])
        own.append(connection)
        for older in own[: -self._limits.of_board]:
            older.end()
        try:
            if sum(map(len, self._boards.values())) > self._limits.boards:
                raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", _BUSY_SECONDS)
            yield
        finally:
            own.remove(connection)
            if not own:
                del self._boards[board]

    async def _work(self, board: str, packed: bytes) -> StoredBatches:
        """Stores a body in another thread, one at a time of each board."""
        if board in self._working:
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "one request at a time", 1)
        self._working.add(board)
        try:
            loop = asyncio.get_running_loop()
            stream = await loop.run_in_executor(self._workers, unpack, packed)
            if wait := self._bytes.wait(board, len(stream) or _SMALL_STREAM):
                raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many bytes", wait)
            if not stream:
                raise RefusedError(HTTPStatus.BAD_REQUEST, "expected compressed batches")
            costly = len(stream) > _SMALL_STREAM or self._work_time.is_used_up(board)
            workers = self._worker_of_costly if costly else self._workers
            return await loop.run_in_executor(workers, self._store_body, board, stream)
        finally:
            self._working.discard(board)

    def _store_body(self, board: str, stream: bytes) -> StoredBatches:
        begin = time.thread_time()
        try:
            stored = self.store_stream(board, stream)
        except TransferError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
        except (EdgekitError, OSError) as error:
            _log.error("profiles: nothing can be stored: %s", error)
            raise RefusedError(HTTPStatus.INSUFFICIENT_STORAGE, "cannot store now", 300) from None
        finally:
            self._work_time.charge(board, time.thread_time() - begin)
        self._metrics.take(board, stored.batches, len(stored.refused))
        if stored.refused:
            count, why = len(stored.refused), stored.refused[0]
            _log.warning("profiles: board '%s': %d batches refused, first: %s", board, count, why)
        return stored


def _log_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs what no connection waited for."""
    error = context.get("exception")
    if not isinstance(error, (OSError, ssl.SSLError, RefusedError)):
        _log.error("profiles: %s", context["message"], exc_info=error)

"""Queues batches in NATS JetStream: servers publish them, writers consume them.

One stream, partitioned by board, holds batches until they are written. The progress of each
partition, and the write in flight, are kept in a key-value bucket with the same replication and
updated by compare-and-swap on the revision. Hence any number of servers and writers can run.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
import uuid
import zlib
from collections.abc import Coroutine, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from edgekit.device.runtime.agent.batch import framed
from edgekit.host.common.optional import optional
from edgekit.host.common.text import printable
from edgekit.host.errors import EdgekitError, IncompatibleError, InputError, UnreachableError
from edgekit.kb.decoding import decode_json

REPLICAS = 3
_PARTITIONS = 16
_STREAM, _BUCKET, _SUBJECTS = "EDGEKIT_PROFILES", "EDGEKIT_PROFILES", "edgekit.profiles"
_OLDEST = (2, 10)  # first server version that can fsync before it acknowledges
_MESSAGE_BYTES = 1 << 20  # batches per message, before compression to about a tenth
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_PATIENCE_SECONDS = 20.0  # a cluster that lost its leader elects another in less time
_FETCHED = 256
_FETCH_SECONDS = 2.0  # messages are present, or another writer has removed them
_SCHEME = re.compile(r"(nats|tls|ws|wss)://")
_T = TypeVar("_T")


class PendingBatches(msgspec.Struct, frozen=True):
    """The messages being written by writer `by`: `count` of them, the last numbered `last`."""

    last: int
    count: int
    by: str


class Cursor(msgspec.Struct, frozen=True):
    """All messages up to number `done` are written; `plan` is the write in flight."""

    done: int = 0
    plan: PendingBatches | None = None


@dataclass(frozen=True)
class BatchMessage:
    """A stream of batches of `board`, received at `received`, in seconds since 1970."""

    number: int
    board: str
    received: float
    stream: bytes


class Bus:
    """A thread-safe connection to the servers at `url`, a comma-separated list.

    UnreachableError if they do not answer within `connect_seconds`, InputError if the URL is
    invalid, IncompatibleError if they are too old or keep fewer than `replicas` copies. Requests
    are retried for `patience_seconds` while the cluster has no leader.
    """

    def __init__(
        self,
        url: str,
        replicas: int = REPLICAS,
        *,
        connect_seconds: float = _CONNECT_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        (self._nats,) = optional("nats")
        self._servers = [one.strip() for one in url.split(",")]
        self.name = ",".join(_redact_address(server) for server in self._servers)
        self._replicas = replicas
        self._connect_seconds, self._patience_seconds = connect_seconds, patience_seconds
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._client: Any = None
        try:
            self._run_sync(self._connect(), connect_seconds + patience_seconds)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._client is not None:
            closing = asyncio.run_coroutine_threadsafe(self._client.close(), self._loop)
            try:
                closing.result(_ANSWER_SECONDS)
            except Exception:  # errors of a connection that is no longer needed do not matter
                closing.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def publish(self, board: str, bodies: Sequence[bytes]) -> None:
        """Publishes batches; all replicas have stored them when this returns. After an
        UnreachableError they may or may not be stored, and may be published again."""
        messages: list[list[bytes]] = [[]]
        for body in bodies:
            if messages[-1] and sum(map(len, messages[-1])) + len(body) > _MESSAGE_BYTES:
                messages.append([])
            messages[-1].append(framed(body))
        digest = hashlib.sha256(board.encode()).digest()
        subject = f"{_SUBJECTS}.{int.from_bytes(digest[:4], 'big') % self.partitions}"
        for frames in messages:
            payload = zlib.compress(b"".join(frames), 1)
            name = hashlib.sha256(board.encode() + b"/" + payload).hexdigest()[:32]
            headers = {"Nats-Msg-Id": name, "Edgekit-Board": board}
            work = self._publish(subject, payload, headers)
            self._run_sync(work, self._patience_seconds + 2 * _ANSWER_SECONDS)

    def waiting(self) -> dict[int, int]:
        """Number of unwritten messages in each partition that has any."""
        info = self._run_sync(self._js.stream_info(_STREAM, subjects_filter=f"{_SUBJECTS}.*"))
        return {int(k.rpartition(".")[2]): n for k, n in (info.state.subjects or {}).items()}

    def cursor(self, partition: int) -> tuple[Cursor, int]:
        """The cursor of a partition and its revision."""
        return self._run_sync(self._get_cursor(f"{self.id}.{partition}"))

    def move(self, partition: int, revision: int, to: Cursor) -> int | None:
        """Replaces the cursor if it is still at `revision`; returns the new revision, or None if
        another writer changed it first."""
        return self._run_sync(
            self._move_cursor(f"{self.id}.{partition}", revision, msgspec.json.encode(to))
        )

    def read(
        self, partition: int, after: int, until: int | None, most: int, most_bytes: int
    ) -> list[BatchMessage]:
        """Consecutive messages after number `after`, up to number `until`: at most `most` of them,
        or about `most_bytes` unpacked."""
        work = self._read_messages(f"{_SUBJECTS}.{partition}", after, until, most, most_bytes)
        return self._run_sync(work, 60.0)

    def forget(self, partition: int, last: int) -> None:
        """Removes the messages up to number `last`, which are written."""
        subject = f"{_SUBJECTS}.{partition}"
        self._run_sync(self._js.purge_stream(_STREAM, seq=last + 1, subject=subject))

    def _run_sync(self, work: Coroutine[Any, Any, _T], seconds: float = 2 * _ANSWER_SECONDS) -> _T:
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(seconds)
        except EdgekitError:
            raise
        except (self._nats.errors.Error, OSError, FutureTimeoutError) as error:
            running.cancel()
            raise UnreachableError(
                f"{self.name}: expected NATS JetStream to answer, found: {_reason(error)}; nothing "
                "is lost: unacknowledged batches are sent again when it answers"
            ) from None

    async def _connect(self) -> None:
        connecting = self._nats.connect(
            self._servers,
            connect_timeout=2,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.25,
            error_cb=_ignore_error,  # failed calls raise their own errors
        )
        try:
            self._client = await asyncio.wait_for(connecting, self._connect_seconds)
        except TimeoutError:
            raise UnreachableError(
                f"{self.name}: expected a NATS server, found none that answers; start it, or "
                "correct the address or its password: --nats"
            ) from None
        version = self._client.connected_server_version
        if (version.major, version.minor) < _OLDEST:
            raise IncompatibleError(
                f"{self.name}: expected nats-server 2.10 or newer, which can sync before it "
                f"acknowledges, found {version}; use a newer one"
            )
        self._js = self._client.jetstream(timeout=_ANSWER_SECONDS)
        self._bucket = await self._retry(self._create_stream)

    async def _create_stream(self) -> Any:
        """The stream's configuration; creates stream and bucket if they do not exist."""
        api, errors = self._nats.js.api, self._nats.js.errors
        made = api.StreamConfig(
            name=_STREAM,
            subjects=[f"{_SUBJECTS}.*"],
            storage=api.StorageType.FILE,
            num_replicas=self._replicas,
            discard=api.DiscardPolicy.NEW,  # a full stream rejects rather than loses messages
            metadata={"edgekit.id": uuid.uuid4().hex[:8], "edgekit.partitions": str(_PARTITIONS)},
        )
        try:
            try:
                info = await self._js.stream_info(_STREAM)
            except errors.NotFoundError:
                info = await self._js.add_stream(made)
            try:
                bucket = await self._js.key_value(_BUCKET)
            except errors.NotFoundError:
                bucket = await self._js.create_key_value(
                    bucket=_BUCKET, replicas=self._replicas, storage=api.StorageType.FILE
                )
            kept = (await self._js.stream_info(f"KV_{_BUCKET}")).config
        except errors.APIError as error:
            if error.code == 503:
                raise
            raise IncompatibleError(
                f"{self.name}: expected a cluster that keeps {self._replicas} copies of each "
                f"batch, found: {_reason(error)}; start more servers, or use fewer: --replicas"
            ) from None
        for config in (info.config, kept):
            self._check_stream(config)
        about = info.config.metadata or {}
        try:
            self.id, self.partitions = about["edgekit.id"], int(about["edgekit.partitions"])
        except (KeyError, ValueError):
            raise IncompatibleError(
                f"{self.name}: expected stream {_STREAM} as edgekit configures it, found it "
                "different; remove it or use another account"
            ) from None
        return bucket

    def _check_stream(self, config: Any) -> None:
        api = self._nats.js.api
        copies = config.num_replicas or 1
        if copies < self._replicas or config.storage != api.StorageType.FILE:
            raise IncompatibleError(
                f"{self.name}: expected stream {config.name} in {self._replicas} replicas on "
                f"disk, found {copies} in {config.storage}; give it more: nats stream edit "
                f"{config.name} --replicas {self._replicas}, or use fewer: --replicas"
            )

    async def _retry(self, work: Any) -> Any:
        """Returns the result of `work`, retried while the cluster has no leader."""
        end = self._loop.time() + self._patience_seconds
        while True:
            try:
                return await work()
            except (TimeoutError, self._nats.errors.Error) as error:
                full = isinstance(error, self._nats.js.errors.APIError) and error.code != 503
                if full or _is_full(error) or self._loop.time() > end:
                    raise
            await asyncio.sleep(0.25)

    async def _publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        await self._retry(
            lambda: self._js.publish(subject, payload, _ANSWER_SECONDS, _STREAM, headers)
        )

    async def _get_cursor(self, key: str) -> tuple[Cursor, int]:
        try:
            entry = await self._bucket.get(key)
        except self._nats.js.errors.KeyNotFoundError:
            return Cursor(), 0
        return decode_json(entry.value, Cursor), int(entry.revision)

    async def _move_cursor(self, key: str, revision: int, value: bytes) -> int | None:
        try:
            return int(await self._bucket.update(key, value, last=revision))
        except self._nats.js.errors.KeyWrongLastSequenceError:
            return None

    async def _read_messages(
        self, subject: str, after: int, until: int | None, most: int, most_bytes: int
    ) -> list[BatchMessage]:
        api = self._nats.js.api
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=60.0,
            num_replicas=1,
            mem_storage=True,
        )
        source = await self._js.pull_subscribe(subject, stream=_STREAM, config=config)
        found: list[BatchMessage] = []
        size = 0
        try:
            left = int((await source.consumer_info()).num_pending or 0)
            while left and len(found) < most and size < most_bytes:
                for message in await self._fetch(source, min(_FETCHED, most, left)):
                    about = message.metadata
                    if about.sequence.consumer != len(found) + 1:
                        return found  # a message was lost in transit
                    if until is not None and about.sequence.stream > until:
                        return found
                    stream = zlib.decompress(message.data)
                    board = message.headers["Edgekit-Board"]
                    came = about.timestamp.timestamp()
                    found.append(BatchMessage(about.sequence.stream, board, came, stream))
                    size, left = size + len(stream), about.num_pending
        except self._nats.errors.TimeoutError:
            pass  # other writers removed the rest, or the server is gone; keep this prefix
        finally:
            await source.unsubscribe()
        return found

    async def _fetch(self, source: Any, most: int) -> list[Any]:
        """Fetches the next messages; retries because another server of the cluster may not know the
        consumer yet."""
        end = self._loop.time() + _ANSWER_SECONDS
        while True:
            try:
                found: list[Any] = await source.fetch(most, _FETCH_SECONDS)
                return found
            except self._nats.js.errors.ServiceUnavailableError:
                if self._loop.time() > end:
                    raise self._nats.errors.TimeoutError from None
            await asyncio.sleep(0.02)


def _is_full(error: Exception) -> bool:
    """Whether the stream is full, so that retrying soon is useless."""
    return getattr(error, "err_code", None) in (10047, 10077, 10122)


def _reason(error: Exception) -> str:
    if _is_full(error):
        return f"no room: {getattr(error, 'description', '')}"
    reason = getattr(error, "description", None) or ""
    if not reason and not hasattr(error, "err_code"):
        reason = str(error)
    reason = reason or type(error).__name__
    return printable(reason.removeprefix("nats: "), 160)


def _redact_address(server: str) -> str:
    """The address without any password."""
    try:
        parts = urlsplit(server if _SCHEME.match(server) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise InputError(
            "--nats: expected nats://HOST:PORT, several with commas, found "
            f"{printable(server.rpartition('@')[2], 60)!r}"
        )
    return f"{parts.scheme}://{host}:{port or 4222}"


async def _ignore_error(_: Exception) -> None:
    pass

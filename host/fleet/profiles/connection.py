"""One connection of the profile server: its streams, with deadlines for what arrives."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import zlib
from dataclasses import dataclass
from http import HTTPStatus

from edgekit.host.fleet.profiles.admission import ConnectionLimits
from edgekit.host.fleet.profiles.request import MOST_HEAD, RefusedError, RequestHead, parse_head

_MOST_STREAM = 2 << 20  # unpacked; boards send 256 KiB, or one batch of up to 1 MiB
LINGER_SECONDS, _LINGER_BYTES = 2.0, 1 << 16  # for a refused client to read why


@dataclass(eq=False)
class Connection:
    """An accepted connection, not yet served or in a task."""

    plain: socket.socket
    address: str
    is_served: bool = False  # by a task, which closes it

    def end(self) -> None:
        """Closes the connection, or lets all its reads and writes fail, so that its task ends."""
        if not self.is_served:
            self.plain.close()
            return
        with contextlib.suppress(OSError):
            self.plain.shutdown(socket.SHUT_RDWR)

    def is_dead(self) -> bool:
        """Whether the other side closed it already."""
        try:
            return not self.plain.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


async def open_streams(
    plain: socket.socket, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The streams of a connection, after its handshake; closes it if that fails."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_HEAD, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, plain, ssl=context, ssl_shutdown_timeout=LINGER_SECONDS
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def read_head(reader: asyncio.StreamReader, seconds: float) -> RequestHead:
    """The head of the next request. EOFError if there is none."""
    try:
        async with asyncio.timeout(seconds):
            return parse_head(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        why = f"expected at most {MOST_HEAD} bytes of headers"
        raise RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why) from None


async def read_body(reader: asyncio.StreamReader, length: int, limits: ConnectionLimits) -> bytes:
    """The `length` bytes of a body; RefusedError if they do not come in time."""
    parts, left = [], length
    try:
        async with asyncio.timeout(limits.body_seconds):
            while left:
                async with asyncio.timeout(limits.silent_seconds):
                    part = await reader.read(left)
                if not part:
                    raise EOFError
                parts.append(part)
                left -= len(part)
    except TimeoutError:
        raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "expected more bytes") from None
    return b"".join(parts)


def unpack(packed: bytes) -> bytes:
    """The batches of a body; nothing if it is none."""
    unpacker = zlib.decompressobj()
    try:
        stream = unpacker.decompress(packed, _MOST_STREAM)
    except zlib.error:
        return b""
    return stream if unpacker.eof else b""


async def send(writer: asyncio.StreamWriter, data: bytes, limits: ConnectionLimits) -> None:
    """Sends an answer; TimeoutError if the client does not read it."""
    writer.write(data)
    async with asyncio.timeout(limits.silent_seconds):
        await writer.drain()


async def linger(reader: asyncio.StreamReader) -> None:
    """Discards some of what a refused client still sends, so that it can read the answer."""
    left = _LINGER_BYTES
    with contextlib.suppress(OSError):
        async with asyncio.timeout(LINGER_SECONDS):
            while left > 0 and (part := await reader.read(left)):
                left -= len(part)

"""Clients that hold, flood or confuse a profile server, each on one connection after another.

    python -m tests.support.hostile PORT CLIENTS ADDRESSES TOKENS.json

runs until it is killed. Clients come from that many addresses of 127.0.0.0/8, the first of which is
127.0.0.1, where well-behaved boards are, too. TOKENS maps enrolled boards to tokens; a tenth of the
clients are these boards gone rogue, at addresses of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.profile_batches import headed, stream

_PAUSE = 0.02  # seconds before a client connects again
_HOLD = 60.0  # seconds for which a client would keep its connection
_DRIP = 0.5  # seconds between the bytes of a slow client
_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE

_MANY = zlib.compress(500 * headed(b"0"))
_MANY_KINDS = zlib.compress(b"".join(headed(b"%d" % number) for number in range(20_000)))
_LARGE = zlib.compress(stream(*range(8), operators=5000))
_BOMB = zlib.compress(bytes(64 << 20))


@dataclass(frozen=True)
class Client:
    """Where a client connects, from which address, and as which board."""

    port: int
    address: str
    board: str
    token: str
    chance: random.Random

    @contextlib.asynccontextmanager
    async def connected(
        self, tls: bool = True
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.port,
            local_addr=(self.address, 0),
            ssl=_CONTEXT if tls else None,
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def head(self, length: object, token: str = "") -> bytes:
        """The head of a request, by default with a token that nobody has."""
        token = token or self.chance.randbytes(32).hex()
        return (
            f"POST /v1/boards/{self.board}/profiles HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    async def post(self, body: bytes) -> None:
        async with self.connected() as (reader, writer):
            writer.write(self.head(len(body), self.token) + body)
            await reader.read(99)


async def silent(client: Client) -> None:
    async with client.connected(tls=False) as (reader, _):
        await reader.read(1)


async def silent_after_handshake(client: Client) -> None:
    async with client.connected() as (reader, _):
        await reader.read(1)


async def garbage(client: Client) -> None:
    async with client.connected(tls=client.chance.random() < 0.5) as (reader, writer):
        writer.write(client.chance.randbytes(4000) + b"\r\n\r\n")
        await reader.read(99)


async def slow_handshake(client: Client) -> None:
    async with client.connected(tls=False) as (_, writer):
        await _drip(writer, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))


async def slow_head(client: Client) -> None:
    async with client.connected() as (_, writer):
        await _drip(writer, client.head(100))


async def endless_head(client: Client) -> None:
    async with client.connected() as (_, writer):
        writer.write(client.head(9)[:-2])
        while not writer.transport.is_closing():
            writer.write(
                b"X-%d: %s\r\n" % (client.chance.getrandbits(60), bytes(200).hex().encode())
            )
            await writer.drain()
            await asyncio.sleep(0)


async def no_token(client: Client) -> None:
    async with client.connected() as (reader, writer):
        writer.write(client.head(9) + b"123456789")
        await reader.read(99)


async def odd_length(client: Client) -> None:
    length = client.chance.choice(["9" * 5000, "²", "-1", "0x9", str(1 << 40), "9, 9"])
    async with client.connected() as (reader, writer):
        writer.write(client.head(length, client.token))
        await reader.read(99)


async def half_closed(client: Client) -> None:
    async with client.connected(tls=False) as (reader, writer):
        writer.write(b"\x16\x03\x01")
        writer.write_eof()
        await reader.read(1)
        await asyncio.sleep(_HOLD)


async def flood(client: Client) -> None:
    for _ in range(20):
        async with client.connected(tls=False):
            pass


async def slow_body(client: Client) -> None:
    async with client.connected() as (_, writer):
        writer.write(client.head(1 << 20, client.token))
        await _drip(writer, bytes(1 << 20))


async def undecodable(client: Client) -> None:
    await client.post(client.chance.choice([_MANY, _MANY_KINDS, _BOMB, b"nonsense"]))


async def large(client: Client) -> None:
    await client.post(_LARGE)


async def _drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    for at in range(len(data)):
        writer.write(data[at : at + 1])
        await writer.drain()
        await asyncio.sleep(_DRIP)


STRANGERS: tuple[Callable[[Client], Awaitable[None]], ...] = (
    silent,
    silent_after_handshake,
    garbage,
    slow_handshake,
    slow_head,
    endless_head,
    no_token,
    odd_length,
    half_closed,
    flood,
)
ROGUES: tuple[Callable[[Client], Awaitable[None]], ...] = (slow_body, undecodable, large)
_SHARE = 10  # of the clients, one is an enrolled board's


async def _repeat(client: Client, kind: Callable[[Client], Awaitable[None]]) -> None:
    while True:
        with contextlib.suppress(OSError, EOFError):
            await asyncio.wait_for(kind(client), _HOLD)
        await asyncio.sleep(_PAUSE)


async def _attack(port: int, clients: int, addresses: int, tokens: dict[str, str]) -> None:
    boards = sorted(tokens.items())
    async with asyncio.TaskGroup() as group:
        print("attacking", flush=True)
        for number in range(clients):
            turn, rest = divmod(number, _SHARE)
            if rest == 0:
                at = turn % len(boards)
                kind, address, (board, token) = ROGUES[turn % 3], f"127.2.0.{at + 1}", boards[at]
            else:
                kind = STRANGERS[(number - turn) % len(STRANGERS)]
                at = (number - turn) // len(STRANGERS) % addresses
                address, board, token = f"127.0.{at // 250}.{at % 250 + 1}", "x", ""
            client = Client(port, address, board, token, random.Random(number))
            group.create_task(_repeat(client, kind))
        if not clients:
            await asyncio.sleep(1 << 20)


if __name__ == "__main__":
    _port, _clients, _addresses = map(int, sys.argv[1:4])
    asyncio.run(_attack(_port, _clients, _addresses, json.loads(Path(sys.argv[4]).read_text())))

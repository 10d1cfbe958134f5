"""Answers boards that fetch releases, on the connections of the profile server."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import Executor
from http import HTTPStatus
from pathlib import Path

from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.fleet.profiles.admission import ConnectionLimits, Quota
from edgekit.host.fleet.profiles.connection import read_body, send
from edgekit.host.fleet.profiles.request import RefusedError, RequestHead, answer, head_of, page
from edgekit.host.fleet.updates.folder import ReleaseFolder

_log = logging.getLogger(__name__)

_PIECE = 1 << 16
_MOST_REPORT = 1 << 12
_BYTES, _BYTES_PER_SECOND = 512 << 20, 64 << 10  # to a board: at once, then
_RANGE = re.compile("bytes=([0-9]{1,15})-")
_BINARY = "application/octet-stream"


class ReleasePages:
    """The pages below /v1/boards/BOARD/releases/ of a folder; none without a folder. Files are read
    by `workers`."""

    def __init__(
        self,
        folder: ReleaseFolder | None,
        limits: ConnectionLimits,
        workers: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._limits, self._workers = folder, limits, workers
        self._bytes = Quota(_BYTES, _BYTES_PER_SECOND, clock)

    async def serve(
        self,
        head: RequestHead,
        board: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answers one request of a board whose token was checked; RefusedError if it asks for
        something else."""
        folder, (kind, _, name) = self._folder, head.release_page.partition("/")
        if folder is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "no releases are offered here")
        if head.method == "POST" and head.release_page == "report":
            body = await read_body(reader, min(head.length, _MOST_REPORT + 1), self._limits)
            await self._run(self._take_report, folder, board, body)
            await send(writer, answer(HTTPStatus.OK, "noted", head.keeps), self._limits)
        elif head.method == "GET" and kind == "metadata":
            data = await self._run(self._read_metadata, folder, name)
            if data:
                text = page(HTTPStatus.OK, data, "application/json", head.keeps)
            else:  # boards ask for the next version of root
                text = answer(HTTPStatus.NOT_FOUND, "no such metadata", head.keeps)
            await send(writer, text, self._limits)
        elif head.method == "GET" and kind == "files":
            path = folder.file(name)
            if path is None:
                raise RefusedError(HTTPStatus.NOT_FOUND, "no such file")
            await self._send_file(path, head, board, writer)
        elif head.method == "GET" and kind == "deltas":
            if path := folder.delta(name):
                await self._send_file(path, head, board, writer)
            else:  # boards ask for each file that changed
                text = answer(HTTPStatus.NOT_FOUND, "no such delta", head.keeps)
                await send(writer, text, self._limits)
        else:
            raise RefusedError(HTTPStatus.NOT_FOUND, "no such page")

    async def _send_file(
        self, path: Path, head: RequestHead, board: str, writer: asyncio.StreamWriter
    ) -> None:
        """Sends a file, or what a range leaves of it."""
        if self._bytes.is_used_up(board):
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many bytes", 60)
        size, start, status, extra = path.stat().st_size, 0, HTTPStatus.OK, ""
        if asked := head.headers.get("range"):
            found = _RANGE.fullmatch(asked)
            if found is None or int(found[1]) >= size:
                raise RefusedError(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"expected a range of {size} bytes"
                )
            start, status = int(found[1]), HTTPStatus.PARTIAL_CONTENT
            extra = f"Content-Range: bytes {start}-{size - 1}/{size}"
        await send(writer, head_of(status, size - start, _BINARY, head.keeps, extra), self._limits)
        with path.open("rb") as file:
            file.seek(start)
            while data := await self._run(file.read, _PIECE):
                self._bytes.charge(board, len(data))
                await send(writer, data, self._limits)

    async def _run(self, work: Callable[..., bytes], *arguments: object) -> bytes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, work, *arguments)

    def _read_metadata(self, folder: ReleaseFolder, name: str) -> bytes:
        try:
            return folder.read(name) or b""
        except (EdgekitError, OSError) as error:
            _log.error("releases: nothing can be offered: %s", error)
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "cannot sign now", 300) from None

    def _take_report(self, folder: ReleaseFolder, board: str, body: bytes) -> bytes:
        try:
            found = folder.take(board, body)
        except InputError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
        except OSError as error:
            _log.error("releases: no report can be stored: %s", error)
            raise RefusedError(HTTPStatus.INSUFFICIENT_STORAGE, "cannot store now", 300) from None
        _log.info("releases: board '%s': %s %s", board, found.release, found.end)
        return b""

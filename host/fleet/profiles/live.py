"""The fleet's live page: boards, releases and rollouts, as they change.

GET /                                        the page, which has no data and asks for the token
GET /v1/fleet/events                         server-sent events `boards` and `rollouts`, as JSON
POST /v1/fleet/rollouts/ID/stop, /rollback   no more boards; back to the releases before

All but the page need the token in operator.token. Browsers send it in a header, which a page of
another site cannot add, so no such page can act for whoever has it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from edgekit.host.errors import EdgekitError
from edgekit.host.fleet.profiles.admission import ConnectionLimits
from edgekit.host.fleet.profiles.batch import Batch
from edgekit.host.fleet.profiles.connection import read_body, send
from edgekit.host.fleet.profiles.request import (
    RefusedError,
    RequestHead,
    answer,
    page,
    stream_head,
)
from edgekit.host.fleet.updates.report import BoardReport

_log = logging.getLogger(__name__)

EVENTS = "/v1/fleet/events"
_ACTION = re.compile(r"/v1/fleet/rollouts/([0-9]{8}-[0-9]{6}-[0-9a-f]{4})/(stop|rollback)")
_LOOK_SECONDS = 2.0  # between two looks for changes
_ALIVE_SECONDS = 15.0  # a client that is gone is noticed when something is sent
_MOST_BOARDS = 2000
_T = TypeVar("_T")


class RolloutRow(Struct):
    """A rollout: `state` is how it ended, or "in progress" or "interrupted"; `counts` are boards by
    state; `troubled` are those worth a look; `note` is what an action of the page came to."""

    id: str
    model: str
    name: str
    began: float
    state: str
    reason: str
    counts: Mapping[str, int]
    troubled: Sequence[TroubledBoard]
    note: str = ""


class TroubledBoard(Struct):
    """A board of a rollout that is not well."""

    name: str
    state: str
    message: str


class Rollouts(Protocol):
    """The rollouts of this host. Both actions return one line, and raise EdgekitError."""

    def newest(self) -> Sequence[RolloutRow]: ...

    def stop(self, rollout: str) -> str: ...

    def take_back(self, rollout: str) -> str: ...


class BoardRow(Struct):
    """An enrolled board; `seen` in seconds since 1970, 0 if it was never heard of."""

    name: str
    seen: float
    temperature_c: float | None
    throttled: bool | None
    models: Sequence[ModelRow]
    reports: Sequence[BoardReport]


class ModelRow(Struct):
    """A model on a board, of the newest batch."""

    model: str
    release: str
    median_us: float
    p90_us: float


KnownBoard = tuple[str, float, Sequence[Batch]]  # name, time and newest batches
Reports = Callable[[], Mapping[str, Mapping[str, BoardReport]]]


class LivePages:
    """Answers people. `page` is the page; `boards` returns name, time and newest batches of each
    enrolled board, `reports` how their last fetched releases ended. Work is done by `workers`."""

    def __init__(
        self,
        page: bytes,
        boards: Callable[[], Iterable[KnownBoard]],
        reports: Reports,
        rollouts: Rollouts | None,
        limits: ConnectionLimits,
        workers: Executor,
    ) -> None:
        self._page, self._limits, self._workers = page, limits, workers
        self._boards, self._reports, self._rollouts = boards, reports, rollouts
        self._lock = threading.Lock()
        self._state: tuple[float, dict[str, bytes]] = (-_LOOK_SECONDS, {})

    @property
    def front(self) -> bytes:
        """The answer to GET /."""
        if not self._page:
            raise RefusedError(HTTPStatus.NOT_FOUND, "no such page")
        return page(HTTPStatus.OK, self._page, "text/html; charset=utf-8", keeps=False)

    async def send_events(self, writer: asyncio.StreamWriter) -> None:
        """Sends each state that differs from the one before, until the client is gone."""
        await send(writer, stream_head("text/event-stream"), self._limits)
        known: dict[str, bytes] = {}
        silent = 0.0
        while True:
            try:
                state = await self._run(self._current)
            except (EdgekitError, OSError) as error:
                _log.error("profiles: the live page ends: %s", error)
                return
            changed = {name: data for name, data in state.items() if known.get(name) != data}
            for name, data in changed.items():
                await send(writer, b"event: %b\ndata: %b\n\n" % (name.encode(), data), self._limits)
            silent = 0.0 if changed else silent + _LOOK_SECONDS
            if silent >= _ALIVE_SECONDS:
                await send(writer, b":\n\n", self._limits)
                silent = 0.0
            known = state
            await asyncio.sleep(_LOOK_SECONDS)

    async def act(
        self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Stops a rollout or takes it back."""
        found = _ACTION.fullmatch(head.path)
        if found is None or head.method != "POST" or self._rollouts is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "no such page")
        await read_body(reader, head.length, self._limits)
        action = self._rollouts.stop if found[2] == "stop" else self._rollouts.take_back
        try:
            said = await self._run(action, found[1])
        except (EdgekitError, OSError) as error:
            raise RefusedError(HTTPStatus.CONFLICT, str(error)) from None
        await send(writer, answer(HTTPStatus.OK, said, False), self._limits)

    async def _run(self, work: Callable[..., _T], *arguments: object) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, work, *arguments)

    def _current(self) -> dict[str, bytes]:
        """The data of each event, made once for all who watch."""
        with self._lock:
            made, state = self._state
            if time.monotonic() - made >= _LOOK_SECONDS / 2:
                state = {
                    "boards": msgspec.json.encode(self._board_rows()),
                    "rollouts": msgspec.json.encode(
                        self._rollouts.newest() if self._rollouts else ()
                    ),
                }
                self._state = (time.monotonic(), state)
            return state

    def _board_rows(self) -> list[BoardRow]:
        reports = self._reports()
        rows = []
        for name, seen, batches in self._boards():
            around = batches[-1].environment if batches else None
            rows.append(
                BoardRow(
                    name,
                    seen,
                    around.temperature_c if around else None,
                    around.throttled if around else None,
                    [
                        ModelRow(
                            one.subject.model,
                            one.subject.release,
                            one.whole.median_ns / 1000,
                            one.whole.p90_ns / 1000,
                        )
                        for one in batches
                    ],
                    list(reports.get(name, {}).values()),
                )
            )
        return rows[:_MOST_BOARDS]

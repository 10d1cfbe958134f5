"""The pages of a profile server that are not for boards: metrics, and the fleet's live page."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus

from edgekit.device.runtime.exposition import CONTENT_TYPE, Family, exposition
from edgekit.host.errors import EdgekitError
from edgekit.host.fleet.profiles.admission import ConnectionLimits, Quota
from edgekit.host.fleet.profiles.connection import send
from edgekit.host.fleet.profiles.live import EVENTS, KnownBoard, LivePages, Reports, Rollouts
from edgekit.host.fleet.profiles.metrics import FleetMetrics, fleet_families
from edgekit.host.fleet.profiles.request import RefusedError, RequestHead, page
from edgekit.host.fleet.profiles.tokens import FileToken, Tokens

_log = logging.getLogger(__name__)

_METRICS = "/metrics"
_MOST_WATCHING = 8
Hold = Callable[[str], AbstractContextManager[None]]


class HostPages:
    """Answers Prometheus and people, who show `scrape_token` and `operator_token`. `front` is the
    live page, empty without one."""

    def __init__(
        self,
        front: bytes,
        tokens: Tokens,
        metrics: FleetMetrics,
        reports: Reports,
        rollouts: Rollouts | None,
        rates: Quota,
        limits: ConnectionLimits,
        workers: Executor,
    ) -> None:
        folder = tokens.path.parent
        self.scrape_token = FileToken(folder / "metrics.token")
        self.operator_token = FileToken(folder / "operator.token")
        self._tokens, self._metrics, self._rollouts = tokens, metrics, rollouts
        self._rates, self._limits, self._workers = rates, limits, workers
        self._live = LivePages(front, self._boards, reports, rollouts, limits, workers)
        self._watching, self._numbers = 0, itertools.count()

    async def serve(
        self,
        head: RequestHead,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hold: Hold,
    ) -> None:
        """Answers one request, the last of its connection; RefusedError if it is refused. `hold`
        keeps a place for a connection that lasts."""
        asked = (head.method, head.path)
        if asked == ("GET", _METRICS):
            self._check(self.scrape_token, head, _METRICS)
            await send(writer, await self._metrics_page(), self._limits)
        elif asked == ("GET", "/"):
            self._check_rate(f"/ {address}")
            await send(writer, self._live.front, self._limits)
        elif head.path.startswith("/v1/fleet/"):
            self._check(self.operator_token, head, "/")
            if asked == ("GET", EVENTS):
                with self._watcher(), hold(f"/{next(self._numbers)}"):
                    await self._live.send_events(writer)
            else:
                await self._live.act(head, reader, writer)
        else:
            raise RefusedError(HTTPStatus.NOT_FOUND, "no such page")

    def _check(self, token: FileToken, head: RequestHead, key: str) -> None:
        if not token.matches(head.token):
            raise RefusedError(HTTPStatus.UNAUTHORIZED, f"the token of {token.path.name} is needed")
        self._check_rate(key)

    def _check_rate(self, key: str) -> None:
        if wait := self._rates.wait(key):
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many requests", wait)

    def _boards(self) -> list[KnownBoard]:
        return self._metrics.boards(self._tokens.boards())

    @contextmanager
    def _watcher(self) -> Iterator[None]:
        if self._watching == _MOST_WATCHING:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many people watch", 60)
        self._watching += 1
        try:
            yield
        finally:
            self._watching -= 1

    async def _metrics_page(self) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            families = await loop.run_in_executor(self._workers, self.families)
        except (EdgekitError, OSError) as error:
            _log.error("profiles: no metrics can be made: %s", error)
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "no metrics now") from None
        return page(HTTPStatus.OK, exposition(families), CONTENT_TYPE, keeps=False)

    def families(self) -> list[Family]:
        """All metrics; safe to call from any thread."""
        rollouts = self._rollouts.newest() if self._rollouts else ()
        counts = [(one.id, one.model, one.counts) for one in rollouts]
        return fleet_families(self._metrics, len(self._tokens.boards()), counts)

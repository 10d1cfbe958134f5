"""Enforces a deadline for each state of a multi-state board command."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType

from edgekit.host.deploy.transport import Transport
from edgekit.host.errors import UnreachableError


class StateTimeout:
    """Closes the connection when the board stays in one state for too long.

    The interrupted call then raises UnreachableError, whatever exception it would have raised
    itself.
    """

    def __init__(self, transport: Transport, seconds: Mapping[str, float]) -> None:
        self._transport = transport
        self._seconds = seconds
        self._timer: threading.Timer | None = None
        self._late = ""

    def __enter__(self) -> StateTimeout:
        return self

    def enter(self, state: str) -> None:
        """Restarts the timer for `state`, which the board has entered."""
        self._cancel_timer()
        self._timer = threading.Timer(self._seconds[state], self._on_timeout, (state,))
        self._timer.daemon = True
        self._timer.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cancel_timer()
        if self._late and isinstance(error, Exception):
            raise UnreachableError(
                f"board '{self._transport.board}': expected '{self._late}' to end within "
                f"{self._seconds[self._late]:g} s, found it still running; "
                "see what the board is doing, then deploy again"
            ) from None

    def _on_timeout(self, state: str) -> None:
        self._late = state
        self._transport.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

"""A transport that another thread can cancel permanently.

Other transports reconnect when used after `close`; canceled fleet work must not.
"""

from __future__ import annotations

import contextlib

from edgekit.host.deploy.transport import Transport, TransportWrapper
from edgekit.host.errors import EdgekitError


class CanceledError(EdgekitError):
    """The work was canceled; implies nothing about the board."""

    def __init__(self, board: str) -> None:
        super().__init__(f"board '{board}': expected to finish, found the work canceled; try again")


class Cancelable(TransportWrapper):
    """Wraps another transport until `cancel` is called."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._canceled = False

    def cancel(self) -> None:
        """Aborts the running call; later calls raise CanceledError."""
        self._canceled = True
        with contextlib.suppress(EdgekitError, OSError):
            self._transport.close()

    def _usable_transport(self) -> Transport:
        if self._canceled:
            raise CanceledError(self.board)
        return self._transport

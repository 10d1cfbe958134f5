"""A transport that can be told from another thread to end, and then stays ended.

Transports connect anew when they are asked again after `close`; work on a fleet that was canceled
must not.
"""

from __future__ import annotations

import contextlib

from edgekit.host.deploy.transport import Transport, TransportWrapper
from edgekit.host.errors import EdgekitError


class CanceledError(EdgekitError):
    """The work was stopped; it says nothing of the board."""

    def __init__(self, board: str) -> None:
        super().__init__(f"board '{board}': expected to go on, found the work canceled; try again")


class Cancelable(TransportWrapper):
    """Implements Transport over another one until `cancel` is called."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._canceled = False

    def cancel(self) -> None:
        """Ends the call that runs, and refuses all others with CanceledError."""
        self._canceled = True
        with contextlib.suppress(EdgekitError, OSError):
            self._transport.close()

    def _reached(self) -> Transport:
        if self._canceled:
            raise CanceledError(self.board)
        return self._transport

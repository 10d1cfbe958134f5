"""A transport that can be told from another thread to end, and then stays ended.

Transports connect anew when they are asked again after `close`; work on a fleet that was canceled
must not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from edgekit.host.errors import EdgekitError
from edgekit.host.transport import Completed, OnBytes, OnLine, Stream, Transport


class CanceledError(EdgekitError):
    """The work was stopped; it says nothing of the board."""

    def __init__(self, board: str) -> None:
        super().__init__(f"board '{board}': expected to go on, found the work canceled; try again")


class Cancelable:
    """Implements Transport over another one until `cancel` is called."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._canceled = False

    @property
    def board(self) -> str:
        return self._transport.board

    @property
    def python(self) -> str:
        return self._transport.python

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        self._check()
        return self._transport.run(command, deadline=deadline, on_line=on_line)

    def open(self, command: Sequence[str], *, deadline: float) -> Stream:
        self._check()
        return self._transport.open(command, deadline=deadline)

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        self._check()
        self._transport.put(data, path, deadline=deadline, on_bytes=on_bytes)

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        self._check()
        return self._transport.get(path, deadline=deadline, on_bytes=on_bytes)

    def remove(self, path: str, *, deadline: float) -> None:
        self._check()
        self._transport.remove(path, deadline=deadline)

    def close(self) -> None:
        self._transport.close()

    def cancel(self) -> None:
        """Ends the call that runs, and refuses all others with CanceledError."""
        self._canceled = True
        with contextlib.suppress(EdgekitError, OSError):
            self._transport.close()

    def _check(self) -> None:
        if self._canceled:
            raise CanceledError(self.board)

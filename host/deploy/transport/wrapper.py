"""A base class for transports that wrap another; calls pass through unless overridden."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.host.deploy.transport.base import Completed, OnBytes, OnLine, Stream, Transport

_ENTER = 'mkdir -p "$0" && cd "$0" && exec "$@"'


class TransportWrapper:
    """Implements Transport. Subclasses choose the wrapped transport and map commands and paths."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def board(self) -> str:
        return self._transport.board

    @property
    def python(self) -> str:
        return self._transport.python

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        return self._usable_transport().run(
            self._map_command(command), deadline=deadline, on_line=on_line
        )

    def open(self, command: Sequence[str], *, deadline: float) -> Stream:
        return self._usable_transport().open(self._map_command(command), deadline=deadline)

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        self._usable_transport().put(
            data, self._map_path(path), deadline=deadline, on_bytes=on_bytes
        )

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        return self._usable_transport().get(
            self._map_path(path), deadline=deadline, on_bytes=on_bytes
        )

    def remove(self, path: str, *, deadline: float) -> None:
        self._usable_transport().remove(self._map_path(path), deadline=deadline)

    def close(self) -> None:
        self._transport.close()

    def _usable_transport(self) -> Transport:
        """Returns the transport that executes a call; raises if calls are not allowed."""
        return self._transport

    def _map_command(self, command: Sequence[str]) -> Sequence[str]:
        return command

    def _map_path(self, path: str) -> str:
        return path


class SubdirTransport(TransportWrapper):
    """Implements Transport in `folder` below another transport's directory: a separate board for
    work that must not affect the deployed release."""

    def __init__(self, transport: Transport, folder: str) -> None:
        super().__init__(transport)
        self._folder = folder

    def _map_command(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", _ENTER, self._folder, *command]

    def _map_path(self, path: str) -> str:
        return f"{self._folder}/{path}"

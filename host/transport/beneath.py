"""A board's folder as a board of its own: for work that must not touch what is deployed."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.host.transport.base import Completed, OnBytes, OnLine, Stream, Transport

_ENTER = 'mkdir -p "$0" && cd "$0" && exec "$@"'


class Beneath:
    """Implements Transport in `folder` below another transport's directory."""

    def __init__(self, transport: Transport, folder: str) -> None:
        self._transport = transport
        self._folder = folder

    @property
    def board(self) -> str:
        return self._transport.board

    @property
    def python(self) -> str:
        return self._transport.python

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        return self._transport.run(self._entered(command), deadline=deadline, on_line=on_line)

    def open(self, command: Sequence[str], *, deadline: float) -> Stream:
        return self._transport.open(self._entered(command), deadline=deadline)

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        self._transport.put(data, f"{self._folder}/{path}", deadline=deadline, on_bytes=on_bytes)

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        return self._transport.get(f"{self._folder}/{path}", deadline=deadline, on_bytes=on_bytes)

    def remove(self, path: str, *, deadline: float) -> None:
        self._transport.remove(f"{self._folder}/{path}", deadline=deadline)

    def close(self) -> None:
        self._transport.close()

    def _entered(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", _ENTER, self._folder, *command]

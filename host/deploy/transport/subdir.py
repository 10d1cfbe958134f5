"""A board's folder as a board of its own: for work that must not touch what is deployed."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.host.deploy.transport.base import Transport
from edgekit.host.deploy.transport.wrapper import Over

_ENTER = 'mkdir -p "$0" && cd "$0" && exec "$@"'


class Beneath(Over):
    """Implements Transport in `folder` below another transport's directory."""

    def __init__(self, transport: Transport, folder: str) -> None:
        super().__init__(transport)
        self._folder = folder

    def _command(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", _ENTER, self._folder, *command]

    def _path(self, path: str) -> str:
        return f"{self._folder}/{path}"

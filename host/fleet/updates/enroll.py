"""Lets a board fetch releases from this host's server."""

from __future__ import annotations

from typing import Any

from edgekit.device.runtime.agent.fetch import FetchSettings, settings_bytes
from edgekit.host.deploy.release import BoardCalls
from edgekit.host.fleet.updates.folder import ReleaseFolder

_SECONDS = 60.0


def enroll_to_fetch(
    board: BoardCalls, folder: ReleaseFolder, settings: FetchSettings, start: bool = True
) -> dict[str, Any]:
    """Gives a board, which has a token already, the root metadata of `folder`, and starts the
    program that polls, unless `start` is False. Returns the document edgekit.fetch.start/1."""
    answer = board.call("fetch-start", "--prepare", deadline=_SECONDS)
    for name, data in (("root.json", folder.root()), ("settings.json", settings_bytes(settings))):
        board.transport.put(data, f"fetch/{name}", deadline=_SECONDS)
    return board.call("fetch-start", deadline=_SECONDS) if start else answer

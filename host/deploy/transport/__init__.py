"""Transports that reach a board; the rest of edgekit uses only the `Transport` interface."""

from edgekit.host.deploy.transport.base import (
    Completed,
    LinkLostError,
    OnBytes,
    OnLine,
    Stream,
    Transport,
)
from edgekit.host.deploy.transport.local import LocalTransport
from edgekit.host.deploy.transport.wrapper import SubdirTransport, TransportWrapper

__all__ = [
    "Completed",
    "LinkLostError",
    "LocalTransport",
    "OnBytes",
    "OnLine",
    "Stream",
    "SubdirTransport",
    "Transport",
    "TransportWrapper",
]

"""Ways to reach a board; all the rest of edgekit knows only `Transport`."""

from edgekit.host.deploy.transport.base import (
    Completed,
    LinkLostError,
    OnBytes,
    OnLine,
    Stream,
    Transport,
)
from edgekit.host.deploy.transport.local import LocalTransport
from edgekit.host.deploy.transport.wrapper import Beneath, Over

__all__ = [
    "Beneath",
    "Completed",
    "LinkLostError",
    "LocalTransport",
    "OnBytes",
    "OnLine",
    "Over",
    "Stream",
    "Transport",
]

"""Ways to reach a board; all the rest of edgekit knows only `Transport`."""

from edgekit.host.transport.base import Completed, LinkLostError, OnBytes, OnLine, Stream, Transport
from edgekit.host.transport.beneath import Beneath
from edgekit.host.transport.local import LocalTransport
from edgekit.host.transport.over import Over

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

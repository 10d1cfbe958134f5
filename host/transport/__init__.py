"""Ways to reach a board; all the rest of edgekit knows only `Transport`."""

from edgekit.host.transport.base import Completed, OnBytes, OnLine, Transport
from edgekit.host.transport.local import LocalTransport

__all__ = ["Completed", "LocalTransport", "OnBytes", "OnLine", "Transport"]

"""Virtual boards: Debian under QEMU, with a board's CPU, a serial console and SSH.

See docs/boards.md for how they are built and what they are suitable for.
"""

from edgekit.host.virtual.machines import virtual_board_names
from edgekit.host.virtual.run import down, find_running, status, up
from edgekit.host.virtual.types import BoardOptions, BoardState, RunningBoard

__all__ = [
    "BoardOptions",
    "BoardState",
    "RunningBoard",
    "down",
    "find_running",
    "status",
    "up",
    "virtual_board_names",
]

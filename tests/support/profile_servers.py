"""`edgekit fleet serve` on a loopback port: in a thread, or as a separate process."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from edgekit.device.runtime.agent.push import PushTarget, read_home
from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.fleet.profiles import Bus, ProfileServer, ProfileStore, enroll
from edgekit.host.fleet.profiles.admission import ConnectionLimits
from edgekit.host.fleet.profiles.live import Rollouts
from tests.support.patience import AMPLE
from tests.support.profile_batches import batch

_SOURCES = Path(__file__).parents[2] / "src"
_PROGRAM = "from edgekit.host.cli.main import run; run()"
_LIMITS = ConnectionLimits()
_TRIES = 20  # another process may take the free port before the server binds it


@contextmanager
def running_server(
    store: ProfileStore,
    limits: ConnectionLimits = _LIMITS,
    bus: Bus | None = None,
    rollouts: Rollouts | None = None,
    front: bytes = b"",
) -> Iterator[ProfileServer]:
    """A server in a thread with this store."""
    address = ("127.0.0.1", 0)
    made = ProfileServer(store, address, limits=limits, bus=bus, rollouts=rollouts, front=front)
    with serving(made) as found:
        yield found


class Server(Protocol):
    """What serves until it is shut down."""

    def serve_forever(self) -> None: ...

    def shutdown(self) -> None: ...

    def close(self) -> None: ...


_S = TypeVar("_S", bound=Server)


@contextmanager
def serving(server: _S) -> Iterator[_S]:
    """Runs a server in a thread."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.close()


def start_server(home: Path, *more: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server with its store below `home`; return it with its port."""
    for _ in range(_TRIES):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        arguments = (
            "fleet",
            "serve",
            "--address",
            "127.0.0.1",
            "--port",
            str(port),
            "--json",
        )
        server = start_edgekit(home, *arguments, *more)
        assert server.stdout is not None
        if server.stdout.readline():
            return server, port
        server.wait()
    raise AssertionError("no server came up")


def start_edgekit(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start an edgekit command; only stdout is captured."""
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env={**os.environ, "EDGEKIT_HOME": str(home), "PYTHONPATH": str(_SOURCES)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def end_server(server: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL."""
    server.kill()
    server.wait()
    assert server.stdout is not None
    server.stdout.close()


def post(port: int, board: str, token: str, body: bytes, source: str = "127.0.0.1") -> bool:
    """Send a compressed stream of batches as a board does, but unthrottled and from the address
    `source`; return whether the server accepted it."""
    try:
        with asking(port, f"/v1/boards/{board}/profiles", token, "POST", body, source) as answer:
            return answer.status == 200
    except (OSError, http.client.HTTPException):
        return False


@contextmanager
def asking(
    port: int,
    path: str,
    token: str = "",
    method: str = "GET",
    body: bytes = b"",
    source: str = "127.0.0.1",
) -> Iterator[http.client.HTTPResponse]:
    """The answer of a server to one request, from the address `source`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=AMPLE, context=context, source_address=(source, 0)
    )
    with closing(connection):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body, headers)
        yield connection.getresponse()


def ask(port: int, path: str, token: str = "", method: str = "GET") -> tuple[int, str, bytes]:
    """Status, content type and body of a server's answer."""
    with asking(port, path, token, method) as answer:
        return answer.status, answer.headers["Content-Type"], answer.read()


def enrolled(server: ProfileServer, root: Path, board: str = "x") -> tuple[Spool, PushTarget]:
    """An enrolled board with three spooled batches, and its home server."""
    transport = LocalTransport(root / board, board)
    home = enroll(Device(transport), server.store, "127.0.0.1", server.port)
    spool = Spool(root / board / "spool")
    assert read_home(spool.folder / "home.json") == home
    return fill(spool), home


def fill(spool: Spool, first: int = 0, count: int = 3, operators: int = 2) -> Spool:
    """Adds batches whose numbers begin with `first`."""
    for number in range(first, first + count):
        spool.add(batch(number, operators))
    return spool

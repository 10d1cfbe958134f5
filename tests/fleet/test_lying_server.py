"""A stolen server, which has the pinned certificate, answers what no server of edgekit would."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.push import Bandwidth, LaterError, PushTarget
from edgekit.device.runtime.agent.server_link import ServerLink
from edgekit.device.runtime.errors import DeviceError, TransferError
from edgekit.host.fleet.profiles.certificate import certificate, server_context
from tests.support.fetching import FAST, NAME

_MOST = 1 << 14


@contextlib.contextmanager
def _server(folder: Path, answer: bytes) -> Iterator[PushTarget]:
    """Answers one request with these bytes."""
    pinned = certificate(folder / "server.pem")
    context = server_context(folder / "server.pem")

    def serve() -> None:
        with (
            contextlib.suppress(OSError),
            listener.accept()[0] as plain,
            context.wrap_socket(plain, server_side=True) as connection,
        ):
            connection.recv(1 << 12)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield PushTarget("127.0.0.1", listener.getsockname()[1], NAME, "0" * 64, pinned, FAST)
        thread.join()


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ("200 OK\r\nContent-Length: 4294967296", TransferError, "expected at most 16384 bytes"),
        ("200 OK\r\nContent-Length: -1", TransferError, "expected at most 16384 bytes"),
        ("200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-7", LaterError, "an answer in chunks"),
        ("503 \r\nContent-Length: 8\r\n\r\n\x1b[31mred", LaterError, r"found 503 \?\[31mred"),
    ],
    ids=["length", "negative length", "negative chunk", "colors"],
)
def test_a_lie_is_one_line(tmp_path: Path, answer: str, kind: type[DeviceError], said: str) -> None:
    data = f"HTTP/1.1 {answer}\r\n\r\n".encode() + bytes(2 * _MOST)
    with _server(tmp_path, data) as home, ServerLink(home, Bandwidth(FAST)) as link:
        with pytest.raises(kind, match=said) as error:
            link.metadata("timestamp.json", _MOST)
        assert str(error.value).isprintable()

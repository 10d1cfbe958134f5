"""A real SSH server that the tests of a folder share, and ways to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sshd import Sshd, running_sshd

from edgekit.host.transport.ssh import SshTarget, SshTransport

Connect = Callable[..., SshTransport]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture
def connect(server: Sshd) -> Iterator[Connect]:
    """A transport to `server`; keywords replace what its target would be."""
    made: list[SshTransport] = []

    def make(*, connect_seconds: float = 20.0, **changes: object) -> SshTransport:
        target = {
            "board": "b",
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "identity": server.identity,
            "host_key": server.host_key,
        }
        transport = SshTransport(
            SshTarget(**{**target, **changes}),  # type: ignore[arg-type]
            connect_seconds=connect_seconds,
        )
        made.append(transport)
        return transport

    yield make
    for transport in made:
        transport.close()

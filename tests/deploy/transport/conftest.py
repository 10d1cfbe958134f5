"""A real SSH server, and transports to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport
from edgekit.host.deploy.transport.ssh_sftp import SFTP_SECONDS
from tests.support.sshd import Sshd, running_sshd

Connect = Callable[..., SshTransport]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture
def connect(server: Sshd) -> Iterator[Connect]:
    """make(**changes): a transport to `server`; keywords override fields of its target."""
    made: list[SshTransport] = []

    def make(
        *, connect_seconds: float = 20.0, sftp_seconds: float = SFTP_SECONDS, **changes: object
    ) -> SshTransport:
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
            sftp_seconds=sftp_seconds,
        )
        made.append(transport)
        return transport

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
def no_keys_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and no SSH agent."""
    home = tmp_path / "me"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home

"""SSH authentication of hosts and users: host keys, keys, agent, ssh config, jump hosts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport, fetch_host_key
from edgekit.host.deploy.transport.ssh_config import literal_hosts
from edgekit.host.deploy.transport.ssh_keys import fingerprint
from edgekit.host.errors import (
    AuthenticationError,
    InputError,
    UnreachableError,
)
from tests.support.sshd import SECONDS, Sshd, make_key, running_sshd, works

pytestmark = [pytest.mark.sshd, pytest.mark.usefixtures("no_keys_of_the_user")]

Connect = Callable[..., SshTransport]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """A private ssh-agent; call it with a key file to add that key."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))

    def add(key: Path) -> None:
        while not socket.exists():
            assert process.poll() is None
        subprocess.run(["ssh-add", "-q", str(key)], check=True, stdin=subprocess.DEVNULL)

    yield add
    process.terminate()
    process.wait()


def no_login_was_tried(server: Sshd) -> bool:
    words = ("Accepted", "Failed", "Postponed", "authenticating user", "invalid user")
    return not any(word in server.log for word in words)


def public(path: Path) -> str:
    return " ".join(path.with_name(path.name + ".pub").read_text().split()[:2])


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_host_keys_of_all_types(tmp_path: Path, kind: str) -> None:
    with running_sshd(tmp_path / kind, kind) as server:
        line = fetch_host_key(server.host, server.port, SECONDS)
        assert line == server.host_key
        shown = subprocess.run(
            ["ssh-keygen", "-lf", str(server.folder / "host_key.pub")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout.split()[1] == fingerprint(line)
        assert no_login_was_tried(server)
        target = SshTarget("b", server.host, server.port, server.user, server.identity, line)
        assert works(SshTransport(target))


def test_changed_host_key(server: Sshd, connect: Connect, tmp_path: Path) -> None:
    make_key(tmp_path / "old")
    pinned = public(tmp_path / "old")
    with pytest.raises(AuthenticationError) as caught:
        works(connect(host_key=pinned))
    text = str(caught.value)
    assert f"expected the pinned host key ssh-ed25519 {fingerprint(pinned)}" in text
    assert f"found ssh-ed25519 {fingerprint(server.host_key)}" in text
    assert "edgekit board add b" in text
    assert caught.value.exit_code == 4
    assert no_login_was_tried(server)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_host_key_of_another_type(
    server: Sshd, connect: Connect, tmp_path: Path, kind: str
) -> None:
    """Only the pinned key type is accepted; a server without it is rejected."""
    make_key(tmp_path / "old", kind)
    pinned = public(tmp_path / "old")
    with pytest.raises(AuthenticationError) as caught:
        works(connect(host_key=pinned))
    assert fingerprint(pinned) in str(caught.value)
    assert f"found ssh-ed25519 {fingerprint(server.host_key)}" in str(caught.value)
    assert no_login_was_tried(server)


def test_unknown_host_key(server: Sshd, connect: Connect) -> None:
    with pytest.raises(AuthenticationError) as caught:
        works(connect(host_key=None))
    assert "expected a pinned host key, found none" in str(caught.value)
    assert fingerprint(server.host_key) in str(caught.value)
    assert no_login_was_tried(server)


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa %%%", "x y z"])
def test_pinned_nonsense(server: Sshd, connect: Connect, line: str) -> None:
    with pytest.raises(InputError, match="board 'b': expected a host key such as"):
        works(connect(host_key=line))
    assert no_login_was_tried(server)


def test_known_hosts_are_not_believed_for_a_board(
    server: Sshd, connect: Connect, no_keys_of_the_user: Path
) -> None:
    known = no_keys_of_the_user / ".ssh" / "known_hosts"
    known.write_text(f"[{server.host}]:{server.port} {server.host_key}\n")
    with pytest.raises(AuthenticationError, match="expected a pinned host key"):
        works(connect(host_key=None))


def test_wrong_key(connect: Connect, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    with pytest.raises(AuthenticationError, match=r"expected .* to accept a key, .*other: refused"):
        works(connect(identity=tmp_path / "other"))


def test_missing_key(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationError, match=r"none: no such file; add the public key"):
        works(connect(identity=tmp_path / "none"))


def test_no_key_at_all(connect: Connect) -> None:
    with pytest.raises(AuthenticationError, match="found none to offer"):
        works(connect(identity=None))


def test_an_invalid_key_is_refused(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(AuthenticationError, match="text: not a private key"):
        works(connect(identity=tmp_path / "text"))


@pytest.mark.parametrize("suffix", ["", "-cert.pub"])
def test_a_file_that_is_not_a_key_is_refused(connect: Connect, tmp_path: Path, suffix: str) -> None:
    key = tmp_path / "key"
    if suffix:
        make_key(key)
    odd = tmp_path / f"key{suffix}"
    os.mkfifo(odd)  # reading it would block
    with pytest.raises(AuthenticationError, match=f"key{suffix}: not a private key"):
        works(connect(identity=key))
    odd.unlink()
    odd.symlink_to("/dev/zero")
    with pytest.raises(AuthenticationError, match=f"key{suffix}: not a private key"):
        works(connect(identity=key))


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_key_that_others_may_write(
    server: Sshd, connect: Connect, tmp_path: Path, mode: int
) -> None:
    key = tmp_path / "key"
    key.write_bytes(server.identity.read_bytes())
    key.chmod(mode)
    with pytest.raises(AuthenticationError, match=r"key: others may write it; run: chmod go-w"):
        works(connect(identity=key))


@pytest.mark.parametrize("host", ["a..b", ".", "x" * 70 + ".example"])
def test_names_that_no_host_has(
    connect: Connect, host: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnreachableError, match="while connecting to"):
        works(connect(host=host))
    assert capfd.readouterr().err == ""


def test_key_with_a_passphrase_is_not_asked_for(connect: Connect, tmp_path: Path) -> None:
    make_key(tmp_path / "secret", passphrase="word")
    with pytest.raises(AuthenticationError, match=r"secret: has a passphrase; run: ssh-add"):
        works(connect(identity=tmp_path / "secret"))


def test_wrong_user(connect: Connect) -> None:
    with pytest.raises(AuthenticationError, match="expected nobody-here@"):
        works(connect(user="nobody-here"))


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_keys_of_other_types(server: Sshd, connect: Connect, tmp_path: Path, kind: str) -> None:
    make_key(tmp_path / "mine", kind)
    (server.folder / "authorized_keys").write_text(public(tmp_path / "mine"))
    assert works(connect(identity=tmp_path / "mine"))


def test_agent_holds_the_key(
    server: Sshd, connect: Connect, agent: Callable[[Path], None], tmp_path: Path
) -> None:
    make_key(tmp_path / "other")
    agent(tmp_path / "other")
    agent(server.identity)
    assert works(connect(identity=None))


def test_agent_opens_a_key_with_a_passphrase(
    server: Sshd, connect: Connect, agent: Callable[[Path], None], tmp_path: Path
) -> None:
    locked = tmp_path / "locked"
    for name in ("identity", "identity.pub"):
        (tmp_path / name.replace("identity", "locked")).write_bytes(
            (server.folder / name).read_bytes()
        )
    locked.chmod(0o600)
    agent(server.identity)
    command = ["ssh-keygen", "-q", "-p", "-N", "word", "-f", str(locked)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert works(connect(identity=locked))


def test_named_key_is_the_only_one_offered(
    server: Sshd, connect: Connect, agent: Callable[[Path], None], tmp_path: Path
) -> None:
    make_key(tmp_path / "other")
    agent(server.identity)
    with pytest.raises(AuthenticationError, match="other: refused"):
        works(connect(identity=tmp_path / "other"))


def test_agent_that_is_gone(
    server: Sshd, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere/agent")
    assert works(connect())


def test_default_key_of_the_user(server: Sshd, connect: Connect, no_keys_of_the_user: Path) -> None:
    key = no_keys_of_the_user / ".ssh" / "id_ed25519"
    key.write_bytes(server.identity.read_bytes())
    key.chmod(0o600)
    assert works(connect(identity=None))


CONFIG = """
Include included
Host *
    User nobody-here
    Port 1
"""
INCLUDED = """
Host board
    HostName {host}
    Port {port}
    User {user}
    IdentityFile {identity}
    IdentitiesOnly yes
"""


def test_ssh_config(server: Sshd, no_keys_of_the_user: Path) -> None:
    config = no_keys_of_the_user / ".ssh" / "config"
    config.write_text(CONFIG)
    (config.parent / "included").write_text(
        INCLUDED.format(
            host=server.host, port=server.port, user=server.user, identity=server.identity
        )
    )
    target = SshTarget("b", "board", host_key=server.host_key, config=config)
    assert works(SshTransport(target))
    assert fetch_host_key("board", None, SECONDS, config=config) == server.host_key
    with pytest.raises(UnreachableError, match="while connecting to board"):
        works(SshTransport(SshTarget("b", "board", host_key=server.host_key)))


def jump_config(folder: Path, first: Sshd, second: Sshd, board: Sshd) -> Path:
    def host(name: str, server: Sshd, more: str = "") -> str:
        return (
            f"Host {name}\n HostName {server.host}\n Port {server.port}\n User {server.user}\n"
            f" IdentityFile {server.identity}\n UserKnownHostsFile {folder / 'known'}\n{more}\n"
        )

    config = folder / "config"
    config.write_text(
        host("first", first)
        + host("second", second, " ProxyJump first")
        + host("board", board, " ProxyJump second")
        + host("listed", board, f" ProxyJump first,{second.user}@second:{second.port}")
    )
    (folder / "known").write_text(
        f"[first]:{first.port} {first.host_key}\n[second]:{second.port} {second.host_key}\n"
    )
    return config


def test_jumps(server: Sshd, tmp_path: Path) -> None:
    with running_sshd(tmp_path / "1") as first, running_sshd(tmp_path / "2") as second:
        config = jump_config(tmp_path, first, second, server)
        for name in ("board", "listed"):
            target = SshTarget("b", name, host_key=server.host_key, config=config)
            transport = SshTransport(target)
            data = os.urandom(1_000_000)
            transport.put(data, "file", deadline=SECONDS)
            assert transport.get("file", deadline=SECONDS) == data
            transport.close()
        assert first.log.count("Accepted publickey") == second.log.count("Accepted publickey") == 2
        assert fetch_host_key("board", None, SECONDS, config=config) == server.host_key

        with pytest.raises(AuthenticationError, match="expected the pinned host key"):
            wrong = SshTarget("b", "board", host_key=first.host_key, config=config)
            works(SshTransport(wrong))
        (tmp_path / "known").write_text(f"[first]:{first.port} {first.host_key}\n")
        with pytest.raises(
            AuthenticationError, match=r"key in known_hosts, found none; .*ssh second"
        ):
            works(SshTransport(target))
        second.close()
        with pytest.raises(UnreachableError, match=f"while connecting to .*:{second.port}"):
            works(SshTransport(target))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Host board\n ProxyJump board", "expected a ProxyJump that ends"),
        ("Host board\n ProxyJump a:b:c", r"expected ProxyJump \[USER@\]HOST\[:PORT\], found"),
        ("Host board\n ProxyCommand nc %h %p", "expected ProxyJump, found ProxyCommand"),
        (f"Host board\n Port {'9' * 5000}", "expected Port 1 to 65535, found '999"),
        ("Host board\n Port many", "expected Port 1 to 65535, found 'many'"),
        ("Host board\n Port", "expected an ssh config"),
    ],
)
def test_config_that_cannot_be_followed(
    server: Sshd, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "config").write_text(text)
    target = SshTarget("b", "board", host_key=server.host_key, config=tmp_path / "config")
    with pytest.raises(InputError, match=message):
        works(SshTransport(target))


def test_a_config_larger_than_any_config_is_refused(tmp_path):
    """A sparse file of 3 GB once took as much memory."""
    huge, path = tmp_path / "huge", tmp_path / "config"
    with huge.open("wb") as file:
        file.truncate(3 << 30)
    path.write_text(f"Include {huge}\n")
    with pytest.raises(InputError, match="it has 3221225472 bytes, more than 1048576"):
        literal_hosts(path)

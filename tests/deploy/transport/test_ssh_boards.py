"""Boards over SSH with missing features, and the traffic of a link."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

import pytest

from edgekit.host.deploy.transport.ssh import SshTransport
from edgekit.host.errors import IncompatibleError, TransferError, UnreachableError
from tests.support.proxy import Fault, running_proxy
from tests.support.sshd import SECONDS, Sshd, works

pytestmark = [pytest.mark.sshd, pytest.mark.usefixtures("no_keys_of_the_user")]

Connect = Callable[..., SshTransport]


def test_board_without_python(server: Sshd, connect: Connect) -> None:
    empty = server.folder / "empty"
    empty.mkdir()
    for name in ("sh", "mkdir"):
        (empty / name).symlink_to(f"/bin/{name}")
    server.before_login(f"PATH={empty}")
    with pytest.raises(IncompatibleError, match=r"expected Python 3\.9 or newer, found none"):
        works(connect())


def test_python_of_another_name(server: Sshd, connect: Connect) -> None:
    """python3 may be too old or a dangling link."""
    programs = server.folder / "programs"
    programs.mkdir()
    for name in ("sh", "mkdir"):
        (programs / name).symlink_to(f"/bin/{name}")
    (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python3").chmod(0o700)
    (programs / "python3.11").symlink_to(sys.executable)
    server.before_login(f"PATH={programs}")
    transport = connect()
    done = transport.run([transport.python, "-c", "print(6 * 7)"], deadline=SECONDS)
    assert done.stdout == b"42\n"
    assert transport.python == str(programs / "python3.11")


def test_a_query_creates_no_folder(server: Sshd, connect: Connect) -> None:
    (server.home / "current").mkdir()  # of another program, next to the missing folder
    transport = connect()
    code = "import os; print('current' in os.listdir())"
    stream = transport.open([transport.python, "-c", code], deadline=SECONDS)
    assert stream.receive(10, deadline=SECONDS) == b"False\n"
    stream.close(deadline=SECONDS)
    assert not (server.home / ".edgekit").exists()
    transport.put(b"x", "incoming/file", deadline=SECONDS)
    assert (server.home / ".edgekit" / "incoming" / "file").read_bytes() == b"x"


def test_folder_that_cannot_be_made(server: Sshd, connect: Connect) -> None:
    (server.home / ".edgekit").touch()
    with pytest.raises(IncompatibleError, match=r"expected a folder that can be written, .*cd"):
        works(connect())


@pytest.mark.parametrize(
    "script",
    [
        "echo Welcome; echo to my board >&2",
        r"printf '\033]0;board\007'; printf half >&2",
        "printf 'a\\000b'; set -x",
    ],
    ids=["lines", "no end of line", "bytes"],
)
def test_login_script_that_talks(server: Sshd, connect: Connect, script: str) -> None:
    """Its output is separated from the command's; SFTP cannot tolerate it, our server can."""
    server.before_login(script)
    transport = connect()
    seen: list[str] = []
    done = transport.run(["sh", "-c", "echo a; echo b >&2"], deadline=SECONDS, on_line=seen.append)
    assert (done.stdout, done.stderr, seen) == (b"a\n", b"b\n", ["b"])
    data = os.urandom(300_000)
    transport.put(data, "a/file", deadline=SECONDS)
    assert transport.get("a/file", deadline=SECONDS) == data


@pytest.mark.parametrize("script", ["read x; read y", "head -1"])
def test_login_script_that_reads(server: Sshd, connect: Connect, script: str) -> None:
    """It gets nothing of what is sent to commands and to the server of files."""
    server.before_login(script)
    transport = connect(sftp_seconds=0.5)
    assert works(transport)
    stream = transport.open(["cat"], deadline=SECONDS)
    stream.send(b"\nabc", deadline=SECONDS)
    assert stream.receive(4, deadline=SECONDS) == b"\nabc"
    stream.close(deadline=SECONDS)
    transport.put(b"data", "file", deadline=SECONDS)
    assert transport.get("file", deadline=SECONDS) == b"data"


@pytest.mark.parametrize(
    ("script", "found"),
    [("exec sh", "that its login shell ended before"), ("sleep 60", "no sign that it started")],
    ids=["ends", "waits"],
)
def test_login_script_that_does_not_go_on(
    server: Sshd, connect: Connect, script: str, found: str
) -> None:
    """On a slow machine, logging in may exceed the first deadlines, so longer ones follow."""
    server.before_login(script)
    message = rf"expected .*python3.*, found {found}.*begin login scripts there"
    for deadline in (1.0, 7.0, 30.0):
        with pytest.raises(UnreachableError) as error:
            connect().run(["true"], deadline=deadline)
        if re.search(message, str(error.value)):
            return
    raise AssertionError(error.value)


NO_SFTP = 'case "$SSH_ORIGINAL_COMMAND" in *sftp-server*) exit 1;; esac'


def test_board_without_sftp(server: Sshd, connect: Connect) -> None:
    server.before_login(NO_SFTP)
    transport = connect()
    for data in (os.urandom(3_000_000), b"shorter"):
        transport.put(data, "a/b/file", deadline=SECONDS)
        assert transport.get("a/b/file", deadline=SECONDS) == data
    with pytest.raises(TransferError, match=r"other: expected to read .*, found: No such file"):
        transport.get("other", deadline=SECONDS)
    assert not list((server.home / ".edgekit" / "incoming").iterdir())


def test_transfer_without_sftp_resumes_over_a_new_link(server: Sshd, connect: Connect) -> None:
    server.before_login(NO_SFTP)
    data = os.urandom(8 << 20)
    with running_proxy(server.host, server.port) as proxy:
        transport = connect(port=proxy.port)
        works(transport)
        proxy.faults.append(Fault(3 << 20))
        proxy.cut()
        before = proxy.up
        transport.put(data, "file", deadline=SECONDS)
        assert proxy.connections >= 3  # more where a handshake took too long
        assert proxy.up - before < len(data) + (1 << 20)
    assert (server.home / ".edgekit" / "file").read_bytes() == data


@pytest.mark.slow
def test_large_file(server: Sshd, connect: Connect) -> None:
    data = os.urandom(1 << 20) * 50
    transport = connect()
    transport.put(data, "file", deadline=SECONDS)
    assert transport.get("file", deadline=SECONDS) == data


def test_nothing_is_left_behind(server: Sshd, connect: Connect) -> None:
    """All files stay below ~/.edgekit, and no temporary file remains after the link closes."""
    transport = connect()
    transport.put(b"x" * 100_000, "a/file", deadline=SECONDS)
    works(transport)
    transport.close()
    assert [p.name for p in server.home.iterdir()] == [".edgekit"]
    found = sorted(p.relative_to(server.home).as_posix() for p in server.home.rglob("*"))
    assert found == [".edgekit", ".edgekit/a", ".edgekit/a/file", ".edgekit/incoming"]


def test_small_things_cost_little(server: Sshd, connect: Connect) -> None:
    with running_proxy(server.host, server.port) as proxy:
        transport = connect(port=proxy.port)
        works(transport)
        assert proxy.total < 10_000
        before = proxy.total
        works(transport)
        assert proxy.total - before < 1_500
        assert proxy.connections == 1

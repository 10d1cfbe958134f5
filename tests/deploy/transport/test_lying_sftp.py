"""A lying SFTP server: each lie gives a named error promptly, or does no harm."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from edgekit.host.deploy.transport.base import Completed
from edgekit.host.deploy.transport.sftp import NotSftpError
from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport
from edgekit.host.deploy.transport.ssh_sftp import command_session
from edgekit.host.errors import EdgekitError, TransferError, UnreachableError
from tests.support.lying_sftp import (
    ATTRS,
    CLOSE,
    CONTENT,
    DATA,
    EXTENDED,
    FSTAT,
    HANDLE,
    INIT,
    NAME,
    OPEN,
    OPENDIR,
    READ,
    READDIR,
    STAT,
    STATUS,
    VERSION,
    WRITE,
    Lie,
    LyingServer,
    lying_server,
    number,
    packet,
    status,
    string,
)
from tests.support.patience import AMPLE
from tests.support.sshd import make_key

SECONDS = AMPLE
LARGE = bytes(100_000)  # large enough that an upload looks for resumable parts


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingServer]:
    with lying_server(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="module")
def link(server: LyingServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTransport]:
    identity = tmp_path_factory.mktemp("keys") / "id"
    make_key(identity)
    target = SshTarget("b", "127.0.0.1", server.port, "u", identity, server.host_key)
    # A server that greets late would not be asked: lies could not be told.
    transport = SshTransport(
        target, connect_seconds=SECONDS, most_output=1 << 20, sftp_seconds=SECONDS
    )
    yield transport
    transport.close()


@pytest.fixture
def liar(server: LyingServer, link: SshTransport) -> Iterator[LyingServer]:
    """The server after a disconnect, so that its lies apply from the start of a session."""
    link.close()
    yield server
    server.lie = lambda kind, id_: None


def answering(request: int, answer: bytes) -> Lie:
    """Answers each request of a kind with `answer`, with the request id inserted."""
    return lambda kind, id_: packet(answer[0], id_ + answer[1:]) if kind == request else None


def raw(request: int, answer: bytes) -> Lie:
    """Answers each request of a kind with `answer`, verbatim."""
    return lambda kind, id_: answer if kind == request else None


def body(kind: int, *fields: bytes) -> bytes:
    return bytes([kind]) + b"".join(fields)


FILE = number(1) + struct.pack(">Q", (1 << 30) + 1)
BEGINNING: dict[str, Lie] = {
    "ends": raw(INIT, b""),
    "talks": raw(INIT, b"Welcome to the \x1b[31mboard!\n"),
    "no length": raw(INIT, number(0)),
    "endless length": raw(INIT, number(0xFFFFFFFF)),
    "no version": raw(INIT, packet(VERSION, b"")),
    "other packet": raw(INIT, packet(STATUS, number(3))),
    "cut extension": raw(INIT, packet(VERSION, number(3) + number(99))),
    "sees another disk": lambda kind, id_: status(id_, 2) if kind == STAT else None,
}
FETCHING: dict[str, tuple[Lie, str]] = {
    "another's answer": (raw(OPEN, packet(HANDLE, number(7777) + string(b"h"))), "found 7777"),
    "no number": (raw(OPEN, packet(HANDLE, b"\0")), "4 bytes more"),
    "status without code": (answering(OPEN, body(STATUS)), "4 bytes more"),
    "status cut in its text": (answering(OPEN, body(STATUS, number(4), number(50))), "50 bytes"),
    "status that paints": (
        lambda kind, id_: status(id_, 4, b"a\x1b[2J\nb" * 99) if kind == OPEN else None,
        r"found: a\\x1b\[2J\\nb",
    ),
    "status nobody knows": (lambda k, i: status(i, 9999) if k == OPEN else None, "status 9999"),
    "all well, no handle": (lambda k, i: status(i, 0) if k == OPEN else None, "answer 102, f"),
    "handle beyond the end": (answering(OPEN, body(HANDLE, number(1 << 30))), "1073741824 bytes"),
    "empty handle": (answering(OPEN, body(HANDLE, string(b""))), "one of 0 bytes"),
    "long handle": (answering(OPEN, body(HANDLE, string(bytes(9999)))), "one of 9999 bytes"),
    "no attributes": (answering(FSTAT, body(ATTRS)), "4 bytes more"),
    "no size": (answering(FSTAT, body(ATTRS, number(0))), "expected the size of a file"),
    "cut size": (answering(FSTAT, body(ATTRS, number(1), b"\0")), "8 bytes more"),
    "cut times": (answering(FSTAT, body(ATTRS, number(9), bytes(8))), "8 bytes more"),
    "name in place of size": (answering(FSTAT, body(NAME, number(0))), "expected SFTP's answer"),
    "over a GiB": (answering(FSTAT, body(ATTRS, FILE)), "found: a file of 1073741825 bytes, more"),
    "more than asked": (answering(READ, body(DATA, string(bytes(70_000)))), "found 70000"),
    "nothing, again and again": (answering(READ, body(DATA, string(b""))), "became shorter"),
    "data beyond the end": (answering(READ, body(DATA, number(1 << 31))), "2147483648 bytes"),
    "data without length": (answering(READ, body(DATA)), "4 bytes more"),
    "the end at once": (lambda k, i: status(i, 1) if k == READ else None, "became shorter"),
    "all well, no data": (lambda k, i: status(i, 0) if k == READ else None, "answer 103, found"),
    "attributes for a close": (answering(CLOSE, body(ATTRS, number(0))), "answer 101, found 105"),
    "answers twice": (
        lambda k, i: packet(HANDLE, i + string(b"h")) * 2 if k == OPEN else None,
        "expected SFTP's answer",
    ),
}
ENTRY = string(b"x") + string(b"-") + number(0)
SENDING: dict[str, tuple[Lie, str]] = {
    "endless folder": (answering(READDIR, body(NAME, number(1), ENTRY)), "found an endless list"),
    "endless empty folder": (answering(READDIR, body(NAME, number(0))), "found an endless list"),
    "four thousand million names": (answering(READDIR, body(NAME, number(0xFFFFFFFF))), "4 bytes"),
    "cut name": (answering(READDIR, body(NAME, number(1), number(9), b"x")), "9 bytes more"),
    "cut attributes": (
        answering(READDIR, body(NAME, number(1), string(b"x") * 2, number(15))),
        "8 bytes more",
    ),
    "name that leads out": (
        answering(READDIR, body(NAME, number(1), string(b"../../x"), string(b""), number(0))),
        "expected the name of a file",
    ),
    "data for a write": (answering(WRITE, body(DATA, string(b"x"))), "answer 101, found 103"),
    "no room": (lambda k, i: status(i, 4, b"Failure") if k == WRITE else None, "found: Failure"),
    "no renaming": (lambda k, i: status(i, 8) if k == EXTENDED else None, "found: status 8"),
    "handle for a rename": (answering(EXTENDED, body(HANDLE, string(b"h"))), "found 102"),
    "another's folder": (raw(OPENDIR, packet(HANDLE, number(1) + string(b"h"))), "to request"),
}


def _named(error: EdgekitError, kind: type[EdgekitError]) -> None:
    text = str(error)
    assert type(error) is kind and text.startswith("board 'b': ") and len(text) < 500
    assert "\x1b" not in text and "\n" not in text


@pytest.mark.parametrize("name", BEGINNING)
def test_files_need_no_sftp_server_that_works(
    name: str, liar: LyingServer, link: SshTransport
) -> None:
    liar.lie = BEGINNING[name]
    transport = SshTransport(link._target, connect_seconds=SECONDS)
    transport.put(LARGE, "folder/file", deadline=SECONDS)
    assert transport.get("folder/file", deadline=SECONDS) == LARGE
    transport.close()


@pytest.mark.parametrize("name", FETCHING)
def test_lies_about_a_file_that_is_fetched(
    name: str, liar: LyingServer, link: SshTransport
) -> None:
    liar.lie, match = FETCHING[name]
    with pytest.raises(TransferError, match=match) as caught:
        link.get("file", deadline=SECONDS)
    _named(caught.value, TransferError)


@pytest.mark.parametrize("name", SENDING)
def test_lies_about_a_file_that_is_sent(name: str, liar: LyingServer, link: SshTransport) -> None:
    liar.lie, match = SENDING[name]
    with pytest.raises(TransferError, match=match) as caught:
        link.put(LARGE, "file", deadline=SECONDS)
    _named(caught.value, TransferError)


def test_silence_ends_with_the_deadline(liar: LyingServer, link: SshTransport) -> None:
    """The server sends part of an answer, then goes silent. The session is open before, since that
    may take longer than the deadline."""
    link.get("file", deadline=SECONDS)
    liar.lie = raw(FSTAT, number(9) + b"\x69")
    with pytest.raises(UnreachableError, match=r"expected an answer within 0\.5 s") as caught:
        link.get("file", deadline=0.5)
    _named(caught.value, UnreachableError)


def test_the_truth_is_believed(liar: LyingServer, link: SshTransport) -> None:
    assert link.get("file", deadline=SECONDS) == CONTENT
    link.put(LARGE, "file", deadline=SECONDS)


@pytest.mark.parametrize("flood", ["stdout", "stderr"])
def test_a_command_that_never_stops_talking(flood: str, link: SshTransport) -> None:
    to = " >&2" if flood == "stderr" else ""
    with pytest.raises(TransferError, match="expected 'sh' to print less") as caught:
        link.run(["sh", "-c", f"head -c 3000000 /dev/zero{to}"], deadline=SECONDS)
    _named(caught.value, TransferError)


class _Ended:
    """A program that reads nothing, answers nothing and ends."""

    def __init__(self, stderr: bytes) -> None:
        self._stderr = stderr

    def send(self, data: bytes, *, deadline: float) -> None:
        del data, deadline

    def receive(self, size: int, *, deadline: float) -> bytes:
        del size, deadline
        return b""

    def close(self, *, deadline: float) -> Completed:
        del deadline
        return Completed(1, b"", self._stderr)


@pytest.mark.parametrize(
    ("stderr", "found"),
    [(b"Traceback\nNo module named zlib\n", "No module named zlib"), (b"", "that it ended")],
)
def test_why_a_board_s_python_serves_no_files_is_named(stderr: bytes, found: str) -> None:
    with pytest.raises(NotSftpError, match=f"to serve files, found {found}$"):
        command_session(_Ended(stderr), "")

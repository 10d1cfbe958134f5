"""The serial transport against a pty with a real shell: commands, files, login, damaged lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.messages import READY, Message
from edgekit.host.deploy.transport import Transport
from edgekit.host.deploy.transport.serial import SerialTransport
from edgekit.host.deploy.transport.serial_line import SerialTarget
from edgekit.host.deploy.transport.serial_session import Ready, RequestFailedError, answer
from edgekit.host.errors import IncompatibleError, InputError, TransferError, UnreachableError
from tests.support.patience import AMPLE, ends_by_itself
from tests.support.tty_board import TtyBoard, ends

SECONDS = AMPLE
ALL_BYTES = bytes(range(256))


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TtyBoard]:
    with TtyBoard(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="module")
def transport(board: TtyBoard) -> Iterator[SerialTransport]:
    found = SerialTransport(board.target())
    yield found
    found.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def test_it_is_a_transport(transport: SerialTransport) -> None:
    found: Transport = transport
    assert found.board == "tty"
    assert Path(found.python).name.startswith("python3")


def test_output_of_all_bytes_on_both_streams(transport: SerialTransport) -> None:
    code = (
        "import sys; b = bytes(range(256)) * 40\n"
        "sys.stdout.buffer.write(b); sys.stderr.buffer.write(b[::-1])"
    )
    done = transport.run(python(code), deadline=SECONDS)
    assert done.stdout == ALL_BYTES * 40
    assert done.stderr == (ALL_BYTES * 40)[::-1]


@pytest.mark.parametrize(
    "text",
    [
        "a 'b' \"c\" $HOME `d` \\ !e",
        "two\nlines\ttab",
        "größer · 模型",
        "x" * 20_000,
        "~D}~ \x03",
        "",
    ],
)
def test_arguments_arrive_as_they_are(transport: SerialTransport, text: str) -> None:
    done = transport.run(["printf", "%s", text], deadline=SECONDS)
    assert done.stdout.decode() == text


def test_lines_are_streamed_as_they_come(transport: SerialTransport, board: TtyBoard) -> None:
    code = (
        "import sys, os, time\nfor i in range(3):\n sys.stderr.write(f'{i}\\n')\n"
        "sys.stderr.flush()\nwhile not os.path.exists('go'): time.sleep(0.01)"
    )
    seen: list[str] = []

    def on_line(line: str) -> None:
        seen.append(line)
        if line == "2":
            (board.home / ".edgekit" / "go").touch()  # ends only if its output is streamed

    assert transport.run(python(code), deadline=SECONDS, on_line=on_line).exit_code == 0
    assert seen == ["0", "1", "2"]


def test_deadline_ends_children_and_spares_the_session(
    transport: SerialTransport, board: TtyBoard
) -> None:
    assert transport.python
    with (
        ends_by_itself(),
        pytest.raises(UnreachableError, match=r"expected 'sh' to end within 1 s"),
    ):
        transport.run(["sh", "-c", "sleep 3333 & sleep 3333"], deadline=1)
    sent = board.to_board
    assert ends("sleep 3333")
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0
    assert board.to_board - sent < 1000  # no new session


@pytest.mark.parametrize("size", [0, 1, 1023, 1 << 20])
def test_files_go_and_come(transport: SerialTransport, size: int) -> None:
    data = os.urandom(size)
    sent: list[int] = []
    got: list[int] = []
    transport.put(b"old", "a/b/file", deadline=SECONDS)
    transport.put(data, "a/b/file", deadline=SECONDS, on_bytes=sent.append)
    assert transport.get("a/b/file", deadline=SECONDS, on_bytes=got.append) == data
    assert sum(sent) == sum(got) == size
    done = transport.run(["ls", "-A", "a/b"], deadline=SECONDS)
    assert done.stdout == b"file\n"


def test_files_travel_compressed(transport: SerialTransport, board: TtyBoard) -> None:
    assert transport.python
    before = board.to_board
    transport.put(b"weights " * 50_000, "file", deadline=SECONDS)
    assert board.to_board - before < 10_000


@pytest.mark.parametrize(
    "url",
    [
        "spy://loop://?file={folder}/precious&all",
        "loop://",
        "hwgrep://(",
        "alt:///dev/ttyS0?class=PosixPollSerial",
        "socket://127.0.0.1:1?logging=debug",
        "file:///etc/passwd",
        "{folder}/precious",
        "{folder}",
    ],
)
def test_only_ports_and_sockets_are_opened(tmp_path: Path, url: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    target = SerialTarget("b", url.format(folder=tmp_path))
    with pytest.raises(InputError, match="expected a serial port such as /dev/ttyUSB0"):
        SerialTransport(target).run(["true"], deadline=5)
    assert precious.read_text() == "keep me"


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"\xff", b"[" * 100_000, b'{"offset": -1}', b'{"offset": "\\u001b[2J"}', b"{}"],
)
def test_what_our_program_there_answers_is_checked(payload: bytes) -> None:
    with pytest.raises(RequestFailedError, match="answered unexpectedly: expected") as caught:
        answer(Message(READY, payload), Ready)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


def test_disk_full_leaves_the_old_file(tmp_path: Path) -> None:
    limited = ("/bin/sh", "-c", "ulimit -f 8; exec sh -i")
    with TtyBoard(tmp_path, shell=limited) as board:
        transport = SerialTransport(board.target())
        transport.put(b"old", "file", deadline=SECONDS)
        with pytest.raises(TransferError, match=r"file: expected to .*too large"):
            transport.put(os.urandom(300_000), "file", deadline=SECONDS)
        assert transport.get("file", deadline=SECONDS) == b"old"
        assert transport.run(["ls", "-A"], deadline=SECONDS).stdout == b"file\n"
        transport.close()


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / ".edgekit").touch()
    with (
        TtyBoard(tmp_path) as board,
        pytest.raises(IncompatibleError, match=r"expected to write in ~/\.edgekit, found: File ex"),
    ):
        SerialTransport(board.target()).run(["true"], deadline=SECONDS)


def test_shell_is_usable_after_close(transport: SerialTransport, board: TtyBoard) -> None:
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0
    transport.close()
    assert board.shell_answers()
    assert transport.run(["echo", "again"], deadline=SECONDS).stdout == b"again\n"


def test_shell_is_usable_after_an_interrupt(transport: SerialTransport, board: TtyBoard) -> None:
    def on_line(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transport.run(["sh", "-c", "echo x >&2; sleep 4444"], deadline=SECONDS, on_line=on_line)
    assert board.shell_answers()
    assert ends("sleep 4444")

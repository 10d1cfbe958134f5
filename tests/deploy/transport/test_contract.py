"""The contract of every transport: commands with deadlines, atomic file transfers."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgekit.host.deploy.transport import LocalTransport, Stream, Transport
from edgekit.host.deploy.transport.serial import SerialTransport
from edgekit.host.deploy.transport.serial_line import SerialTarget
from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport
from edgekit.host.errors import TransferError, UnreachableError
from tests.support.patience import AMPLE, ends_by_itself, until
from tests.support.places import few_or_all
from tests.support.sshd import running_sshd
from tests.support.tty_board import TtyBoard

SECONDS = AMPLE


@dataclass(frozen=True)
class Board:
    """A transport, and the local folder that holds its files."""

    transport: Transport
    root: Path


def _local(folder: Path, _: ExitStack) -> Board:
    return Board(LocalTransport(folder / "board", "b"), folder / "board")


def _ssh(folder: Path, stack: ExitStack) -> Board:
    server = stack.enter_context(running_sshd(folder / "sshd"))
    target = SshTarget("b", server.host, server.port, server.user, server.identity, server.host_key)
    transport = SshTransport(target)
    stack.callback(transport.close)
    return Board(transport, server.home / ".edgekit")


def _serial(folder: Path, stack: ExitStack) -> Board:
    console = stack.enter_context(TtyBoard(folder))
    transport = SerialTransport(SerialTarget("b", console.url))
    stack.callback(transport.close)
    return Board(transport, folder / ".edgekit")


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.sshd), "serial"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Board]:
    make = {"local": _local, "ssh": _ssh, "serial": _serial}[request.param]
    with ExitStack() as stack:
        yield make(tmp_path, stack)


@pytest.fixture
def transport(board: Board) -> Transport:
    return board.transport


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def files(board: Board) -> list[bytes]:
    return [path.read_bytes() for path in sorted(board.root.rglob("*")) if path.is_file()]


def test_it_has_a_name_and_python(transport: Transport) -> None:
    assert transport.board == "b"
    done = transport.run([transport.python, "-c", "print(6 * 7)"], deadline=SECONDS)
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"42\n", b"")
    transport.close()


def test_command_runs_in_the_board_directory(board: Board) -> None:
    done = board.transport.run(
        python("import os, sys; print(os.getcwd()); sys.stderr.write('note'); sys.exit(3)"),
        deadline=SECONDS,
    )
    assert done.exit_code == 3
    assert done.stdout.decode() == f"{board.root}\n"
    assert done.stderr == b"note"


def test_environment_stays_behind(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_SECRET", "/nowhere")
    done = transport.run(python("import os; print(sorted(os.environ))"), deadline=SECONDS)
    assert b"EDGEKIT_SECRET" not in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["a b", "", "'", '"', "$HOME", "`id`"], ["a\nb", "\\", "ä€😀", "*", "-n", "!x", "~"]],
)
def test_arguments_arrive_as_they_are(transport: Transport, arguments: list[str]) -> None:
    code = "import os, sys; sys.stdout.buffer.write(os.fsencode('\\0'.join(sys.argv[1:])))"
    done = transport.run([*python(code), *arguments], deadline=SECONDS)
    assert done.stdout.decode().split("\0") == arguments


def test_much_output_on_both_streams(transport: Transport) -> None:
    code = (
        "import sys\nfor _ in range(200):\n sys.stdout.write('o'*999)\n sys.stderr.write('e'*999)"
    )
    done = transport.run(python(code), deadline=SECONDS)
    assert (len(done.stdout), len(done.stderr)) == (199_800, 199_800)


def test_lines_are_streamed_as_they_come(board: Board) -> None:
    """The command ends only because its last line was received."""
    code = (
        "import os, sys, time\nfor i in range(3): print(i, file=sys.stderr, flush=True)\n"
        "while not os.path.exists('seen'): time.sleep(0.01)"
    )
    seen: list[str] = []

    def on_line(line: str) -> None:
        seen.append(line)
        if line == "2":
            (board.root / "seen").touch()

    with ends_by_itself():
        done = board.transport.run(python(code), deadline=SECONDS, on_line=on_line)
    assert (done.exit_code, seen) == (0, ["0", "1", "2"])


def test_last_line_needs_no_end(transport: Transport) -> None:
    seen: list[str] = []
    command = python("import sys; sys.stderr.write('a\\n\\nb')")
    transport.run(command, deadline=SECONDS, on_line=seen.append)
    assert seen == ["a", "", "b"]


def test_deadline_ends_children_too(transport: Transport) -> None:
    transport.run(["true"], deadline=SECONDS)  # connect first, so that only the command counts
    mark = f"999.{time.time_ns()}"
    with (
        ends_by_itself(),
        pytest.raises(UnreachableError, match=r"expected 'sh' to end within 0\.5 s"),
    ):
        transport.run(["sh", "-c", f"sleep {mark} & sleep {mark}"], deadline=0.5)
    until(lambda: mark not in processes())


def test_close_ends_what_runs(transport: Transport) -> None:
    mark = f"999.{time.time_ns()}"
    transport.run(["true"], deadline=SECONDS)
    closer = threading.Thread(target=transport.close)
    command = ["sh", "-c", f"echo begun >&2; exec sleep {mark}"]
    with ends_by_itself():
        try:
            done = transport.run(command, deadline=AMPLE, on_line=lambda _: closer.start())
            ended = done.exit_code < 0
        except UnreachableError:
            ended = True
    assert ended
    closer.join()
    until(lambda: mark not in processes())
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0


def test_deadline_that_is_kept_kills_nothing(transport: Transport) -> None:
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0
    before = set(threading.enumerate())
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0
    assert set(threading.enumerate()) <= before


def test_killed_command_says_so(transport: Transport) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    done = transport.run(python(code), deadline=SECONDS)
    assert (done.exit_code, done.stderr) == (-11, b"")


def test_no_such_program(transport: Transport) -> None:
    match = "expected to run /no/python, found: No such file or directory; install it there"
    with pytest.raises(UnreachableError, match=match):
        transport.run(["/no/python"], deadline=SECONDS)


def test_files_go_and_come(transport: Transport) -> None:
    data = os.urandom(3 << 20)
    sent: list[int] = []
    got: list[int] = []
    transport.put(data, "a/b/file", deadline=SECONDS, on_bytes=sent.append)
    assert transport.get("a/b/file", deadline=SECONDS, on_bytes=got.append) == data
    assert sum(sent) == sum(got) == len(data)
    assert len(sent) > 1
    transport.put(b"", "a/b/file", deadline=SECONDS)
    assert transport.get("a/b/file", deadline=SECONDS) == b""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a b", "ünï/cødé 😀", "new\nline", "'quoted\"", "-rf", "*"])
def test_names_are_names(board: Board, name: str) -> None:
    board.transport.put(b"x", "bystander", deadline=SECONDS)
    board.transport.put(b"y", name, deadline=SECONDS)
    assert (board.root / name).read_bytes() == b"y"
    assert board.transport.get(name, deadline=SECONDS) == b"y"
    board.transport.remove(name, deadline=SECONDS)
    assert files(board) == [b"x"]


def test_files_are_private(board: Board) -> None:
    board.transport.put(b"x", "a/b", deadline=SECONDS)
    assert board.root.stat().st_mode & 0o077 == 0
    assert (board.root / "a").stat().st_mode & 0o077 == 0


def test_remove_takes_files_folders_and_nothing(board: Board, tmp_path: Path) -> None:
    board.transport.put(b"x", "a/b", deadline=SECONDS)
    (board.root / "link").symlink_to(tmp_path)
    for path in ("a", "a", "link"):
        board.transport.remove(path, deadline=SECONDS)
    assert files(board) == []
    assert not (board.root / "link").is_symlink()
    assert tmp_path.exists()


def test_missing_file(transport: Transport) -> None:
    with pytest.raises(TransferError, match="none: expected to read"):
        transport.get("none", deadline=SECONDS)


def test_what_a_callback_raises_comes_through(board: Board) -> None:
    def fail(_: int) -> None:
        raise BrokenPipeError("nobody reads this")

    with ends_by_itself(), pytest.raises((BrokenPipeError, TransferError), match=r"nobody|found: "):
        board.transport.put(b"x" * 1000, "file", deadline=AMPLE, on_bytes=fail)
    board.transport.put(b"y", "file", deadline=SECONDS)
    assert (board.root / "file").read_bytes() == b"y"


@pytest.mark.parametrize("code", few_or_all([1, 2, 126, 127, 128, 255], [1, 126, 255]))
def test_exit_codes_are_the_commands_own(transport: Transport, code: int) -> None:
    assert transport.run(["sh", "-c", f"exit {code}"], deadline=SECONDS).exit_code == code


def test_folder_in_the_way(board: Board) -> None:
    board.transport.put(b"x", "folder/file", deadline=SECONDS)
    with pytest.raises(TransferError, match="board 'b': folder: expected to"):
        board.transport.put(b"y", "folder", deadline=SECONDS)
    assert files(board) == [b"x"]


ECHO = """
import os, sys
while data := os.read(0, 1 << 16):
    os.write(1, data.upper())
sys.stderr.write("over\\n")
sys.exit(3)
"""


def exactly(stream: Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.receive(size - len(data), deadline=SECONDS)
        assert part
        data += part
    return data


def test_a_stream_carries_bytes_both_ways(transport: Transport) -> None:
    stream = transport.open(python(ECHO), deadline=SECONDS)
    for size in (1, 5, 100_000):
        data = b"ab\0\n~" * (size // 5 + 1)
        sender = threading.Thread(target=stream.send, args=(data,), kwargs={"deadline": SECONDS})
        if isinstance(transport, SerialTransport):
            stream.send(data, deadline=SECONDS)
        else:
            sender.start()
        assert exactly(stream, len(data)) == data.upper()
        if sender.ident:
            sender.join()
    ended = stream.close(deadline=SECONDS)
    assert (ended.exit_code, ended.stderr) == (3, b"over\n")
    assert stream.close(deadline=SECONDS) == ended
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0


def test_a_stream_of_a_killed_program_ends(transport: Transport) -> None:
    code = "import os, signal; os.read(0, 1); os.kill(os.getpid(), signal.SIGKILL)"
    stream = transport.open(python(code), deadline=SECONDS)
    stream.send(b"x", deadline=SECONDS)
    assert stream.receive(1, deadline=SECONDS) == b""
    stream.send(b"lost", deadline=SECONDS)
    assert stream.close(deadline=SECONDS).exit_code == -9


def test_a_stream_that_does_not_answer_is_ended(transport: Transport) -> None:
    mark = f"999.{time.time_ns()}"
    stream = transport.open(["sleep", mark], deadline=SECONDS)
    with pytest.raises(UnreachableError, match=r"expected 'sleep' to answer within 0\.3 s"):
        stream.receive(1, deadline=0.3)
    stream.close(deadline=0)
    until(lambda: mark not in processes())
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0


def test_closing_a_stream_ends_a_program_that_does_not_listen(transport: Transport) -> None:
    mark = f"999.{time.time_ns()}"
    stream = transport.open(["sleep", mark], deadline=SECONDS)
    assert stream.close(deadline=0.1).exit_code < 0
    until(lambda: mark not in processes())


def test_a_stream_of_no_program(transport: Transport) -> None:
    with pytest.raises(UnreachableError, match="expected to run /no/python, found: No such file"):
        transport.open(["/no/python"], deadline=SECONDS).receive(1, deadline=SECONDS)
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0


def processes() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)

"""From any console output to a running session: logins, shells, Pythons, wrong ports."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from pathlib import Path

import pytest

from edgekit.host.deploy.transport.serial import SerialTransport
from edgekit.host.deploy.transport.serial_line import SerialTarget
from edgekit.host.errors import (
    AuthenticationError,
    IncompatibleError,
    InputError,
    UnreachableError,
)
from tests.support.patience import AMPLE, ends_by_itself
from tests.support.tty_board import KERNEL, PASSWORD, USER, Faults, TtyBoard

SECONDS = AMPLE


def answers(board: TtyBoard) -> bool:
    transport = SerialTransport(board.target())
    try:
        return transport.run(["echo", "there"], deadline=SECONDS).stdout == b"there\n"
    finally:
        transport.close()


def test_logs_in_and_out(tmp_path: Path) -> None:
    with TtyBoard(tmp_path, login=True) as board:
        assert answers(board)
        assert b"login: " in board.types(b"\r", b"login: ")
        assert answers(board)


def test_kernel_messages_while_logging_in(tmp_path: Path) -> None:
    with TtyBoard(tmp_path, login=True, faults=Faults(noise=1 / 400)) as board:
        assert answers(board)
        assert board.damages > 3


def test_kernel_message_behind_the_prompt(tmp_path: Path) -> None:
    with TtyBoard(tmp_path, login=True) as board:
        board.says = KERNEL
        assert answers(board)


def test_name_left_at_the_login_prompt(tmp_path: Path) -> None:
    with TtyBoard(tmp_path, login=True) as board:
        assert b"Password" in board.types(b"someone\r", b"Password: ")
        assert answers(board)


@pytest.mark.parametrize("password", ["wrong", None])
def test_wrong_password(tmp_path: Path, password: str | None) -> None:
    with TtyBoard(tmp_path, login=True) as board:
        transport = SerialTransport(board.target(password))
        with pytest.raises(AuthenticationError, match=f"user '{USER}'") as caught:
            transport.run(["true"], deadline=SECONDS)
        assert PASSWORD not in str(caught.value)
        assert answers(board)


def test_password_is_not_shown() -> None:
    assert PASSWORD not in repr(SerialTarget("b", "/dev/ttyS0", password=PASSWORD))


@pytest.mark.parametrize("keys", [b"echo 'half a line", b"cat\r", b"if true; then\r"])
def test_console_that_was_left_in_the_middle(tmp_path: Path, keys: bytes) -> None:
    with TtyBoard(tmp_path, shell=("/bin/bash", "--norc", "-i")) as board:
        board.types(keys, keys.strip()[-4:])
        assert answers(board)


def test_bash_with_a_colored_prompt(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("PS1='\\[\\e[1;32m\\]\\u@\\h\\[\\e[0m\\]:\\w\\$ '\n")
    shell = ("/bin/bash", "--rcfile", str(tmp_path / "rc"), "-i")
    with TtyBoard(tmp_path, shell=shell) as board:
        assert answers(board)


def test_shell_whose_prompts_come_late(tmp_path: Path) -> None:
    slow = tmp_path / "python3"  # a late prompt comes while it starts
    slow.write_text(f'#!/bin/sh\nsleep 0.4\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    shell = ("/bin/sh", "-c", "PS1='$(sleep 0.3)board$ ' exec sh -i")
    path = f"{tmp_path}:{os.environ['PATH']}"
    with TtyBoard(tmp_path, shell=shell, path=path) as board:
        assert answers(board)


@pytest.mark.slow
def test_session_that_a_killed_host_left_behind(tmp_path: Path) -> None:
    with TtyBoard(tmp_path) as board:
        first = SerialTransport(board.target())
        board.faults.cut_after = [30_000]
        with pytest.raises(UnreachableError):
            first.run(["sh", "-c", "while :; do date | gzip; done"], deadline=SECONDS)
        first.close()
        assert answers(board)


def test_over_a_pty(tmp_path: Path) -> None:
    with TtyBoard(tmp_path, over_pty=True) as board:
        transport = SerialTransport(board.target())
        data = bytes(range(256)) * 2000
        transport.put(data, "file", deadline=SECONDS)
        assert transport.get("file", deadline=SECONDS) == data
        transport.close()


@pytest.mark.parametrize("over_pty", [True, False])
def test_a_line_is_used_by_one_at_a_time(tmp_path: Path, over_pty: bool) -> None:
    with TtyBoard(tmp_path, over_pty=over_pty) as board:
        first = SerialTransport(board.target())
        assert first.run(["true"], deadline=SECONDS).exit_code == 0
        with pytest.raises(UnreachableError, match="close the other program"):
            SerialTransport(board.target()).run(["true"], deadline=SECONDS)
        first.close()
        assert answers(board)


def test_board_without_python(tmp_path: Path) -> None:
    with (
        TtyBoard(tmp_path, path="/nowhere") as board,
        pytest.raises(
            IncompatibleError, match=r"expected Python 3\.9 or newer, found: .*not found"
        ),
    ):
        SerialTransport(board.target()).run(["true"], deadline=SECONDS)


def test_board_with_an_old_python(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.7.3\nexit 1\n')
    old.chmod(0o755)
    with (
        TtyBoard(tmp_path, path=str(tmp_path)) as board,
        pytest.raises(
            IncompatibleError, match=r"expected Python 3\.9 or newer, found: Python 3\.7"
        ),
    ):
        SerialTransport(board.target()).run(["true"], deadline=SECONDS)


def test_silence(tmp_path: Path) -> None:
    with (
        ends_by_itself(),
        TtyBoard(tmp_path, faults=Faults(deaf=True)) as board,
        pytest.raises(UnreachableError, match=r"expected a login or shell prompt on .* silence"),
    ):
        SerialTransport(board.target()).run(["true"], deadline=3)


def test_something_that_is_no_shell(tmp_path: Path) -> None:
    shell = ("/bin/sh", "-c", "trap '' INT; while read x; do printf 'Unknown command\\n=> '; done")
    wanted = r"expected a login or shell prompt on .*found '=>'"
    with TtyBoard(tmp_path, shell=shell) as board:
        for deadline in (4, 16, 64):  # beside other processes the shell may answer late
            with pytest.raises(UnreachableError) as refused:
                SerialTransport(board.target()).run(["true"], deadline=deadline)
            if re.search(wanted, str(refused.value)):
                return
    assert re.search(wanted, str(refused.value))


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("/dev/ttyUSB99", "No such file.*; plug the adapter in"),
        ("socket://127.0.0.1:1", "refused; start the board first"),
    ],
)
def test_port_that_is_not_there(url: str, advice: str) -> None:
    with pytest.raises(UnreachableError, match=f"board 'b': expected to open {url}.*{advice}"):
        SerialTransport(SerialTarget("b", url)).run(["true"], deadline=3)


def test_port_of_an_unknown_kind() -> None:
    with pytest.raises(InputError, match="expected a serial port such as /dev/ttyUSB0"):
        SerialTransport(SerialTarget("b", "carrier-pigeon://x")).run(["true"], deadline=3)


def test_close_ends_a_call_of_another_thread(tmp_path: Path) -> None:
    with TtyBoard(tmp_path) as board:
        transport = SerialTransport(board.target())
        assert transport.python
        closer = threading.Thread(target=transport.close)
        command = ["sh", "-c", "echo begun >&2; exec sleep 999"]
        with ends_by_itself(), pytest.raises(UnreachableError, match="closed meanwhile"):
            transport.run(command, deadline=AMPLE, on_line=lambda _: closer.start())
        closer.join()
        assert transport.run(["true"], deadline=SECONDS).exit_code == 0
        transport.close()


@pytest.mark.long
def test_board_frees_its_console_when_the_host_is_silent(tmp_path: Path) -> None:
    with TtyBoard(tmp_path) as board:
        transport = SerialTransport(board.target())
        assert transport.run(["true"], deadline=SECONDS).exit_code == 0
        board.faults.deaf = True
        time.sleep(35)
        board.faults.deaf = False
        assert b"board$" in board.output[-200:]
        assert transport.run(["echo", "again"], deadline=SECONDS).stdout == b"again\n"
        transport.close()

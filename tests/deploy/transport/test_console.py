"""The serial console for users: capture with timestamps and interactive use."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import termios
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from edgekit.host.cli.main import main
from edgekit.host.deploy.transport.console import ESCAPE, Console
from edgekit.host.errors import UnreachableError
from tests.support.patience import PATIENCE, ends_by_itself
from tests.support.tty_board import Faults, TtyBoard

RUN = "from edgekit.host.cli.main import run; run()"
NOW = datetime(2024, 2, 3, 4, 5, 6, 7000)
# Boots on demand, so that no output precedes the listener.
BOOT = "printf 'boot 1\\nboot \\303\\251 2\\nready> '; sleep 60"
CHATTER = ("/bin/sh", "-c", f"while [ ! -e go ]; do sleep 0.05; done; {BOOT}")


def boot_when_connected(board: TtyBoard) -> None:
    while not board.connections:
        time.sleep(0.05)
    time.sleep(0.3)
    (board.home / "go").touch()


def captured(board: TtyBoard, **limits: object) -> tuple[str, str]:
    file = io.StringIO()
    console = Console(board.target())
    (board.home / "go").touch()
    try:
        found = console.capture(file, now=lambda: NOW, **limits)  # type: ignore[arg-type]
    finally:
        console.close()
    assert found.lines == len(file.getvalue().splitlines())
    return found.end, file.getvalue()


def test_lines_get_the_time_they_came(tmp_path: Path) -> None:
    with TtyBoard(tmp_path, shell=CHATTER) as board:
        end, text = captured(board, until="ready>", seconds=10)
    assert end == "until"
    stamp = "2024-02-03T04:05:06.007"
    assert text == f"{stamp} boot 1\n{stamp} boot é 2\n{stamp} ready> \n"


def test_capture_ends_by_time(tmp_path: Path) -> None:
    with ends_by_itself(), TtyBoard(tmp_path, shell=CHATTER) as board:
        end, text = captured(board, seconds=2)
    assert end == "seconds"
    assert "boot 1" in text


def test_text_that_never_comes(tmp_path: Path) -> None:
    with (
        TtyBoard(tmp_path, shell=CHATTER) as board,
        pytest.raises(UnreachableError, match=r"expected 'login:' on .* within 2 s, .*'ready> '"),
    ):
        captured(board, until="login:", seconds=2)


def test_lost_line_keeps_what_was_there(tmp_path: Path) -> None:
    file = io.StringIO()
    with TtyBoard(tmp_path, shell=CHATTER, faults=Faults(cut_after=[5])) as board:
        console = Console(board.target())
        (tmp_path / "go").touch()
        with pytest.raises(
            UnreachableError, match=r"expected the console to stay open, found socket"
        ):
            console.capture(file, seconds=10)
        console.close()
    assert "boot 1" in file.getvalue()


def test_a_person_types_and_leaves(tmp_path: Path) -> None:
    with TtyBoard(tmp_path) as board:
        console = Console(board.target())
        person, terminal = pty.openpty()
        thread = threading.Thread(target=console.interact, args=(terminal, terminal), daemon=True)
        thread.start()
        while termios.tcgetattr(terminal)[3] & termios.ICANON:  # earlier keystrokes are lost
            time.sleep(0.01)
        os.write(person, b"\recho $((6*7))-is-it\r")
        shown = b""
        while b"42-is-it" not in shown and select.select([person], [], [], PATIENCE)[0]:
            shown += os.read(person, 4096)
        assert b"42-is-it" in shown
        os.write(person, b"echo left" + ESCAPE + b"echo unseen\r")
        thread.join(PATIENCE)
        assert not thread.is_alive()
        console.close()
        assert b"left" in board.types(b"\r", b"left")
        assert b"unseen" not in board.output
        for descriptor in (person, terminal):
            os.close(descriptor)


def test_command_writes_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "boot.log"
    with TtyBoard(tmp_path, shell=CHATTER) as board:
        threading.Thread(target=boot_when_connected, args=(board,), daemon=True).start()
        limits = ["--until", "ready>", "--seconds", "20"]
        code = main(["console", "--device", board.url, "--log", str(log), *limits, "--json"])
    assert code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "edgekit.console/1"
    assert (document["end"], document["lines"]) == ("until", 3)
    assert [line.split(" ", 1)[1] for line in log.read_text().splitlines()][:1] == ["boot 1"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--json"], 2, "expected --log FILE with"),
        (["--device", "/dev/ttyUSB99", "--log", "LOG"], 3, "expected to open /dev/ttyUSB99"),
        (["--device", "/dev/null", "--log", "/no/where"], 2, "expected its folder to exist"),
        (["--board", "local", "--log", "LOG"], 2, "found 'local', which is this machine"),
        (["--board", "nosuch", "--log", "LOG"], 2, "expected a board that can be reached"),
    ],
)
def test_what_the_command_refuses(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    assert main(["console", *arguments]) == code
    assert text in capsys.readouterr().err


def test_the_command_refuses_an_input_that_is_no_terminal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "console", "--device", "/dev/null"],
        env={**os.environ, "EDGEKIT_HOME": str(tmp_path / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "expected a terminal to type in" in done.stderr

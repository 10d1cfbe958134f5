"""The local transport: commands with deadlines, files whole or not at all."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from pathlib import Path

import pytest

from edgekit.host.errors import TransferError, UnreachableError
from edgekit.host.transport import LocalTransport, Transport

SECONDS = 20.0


@pytest.fixture
def transport(tmp_path: Path) -> LocalTransport:
    return LocalTransport(tmp_path / "board")


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def test_it_is_a_transport(transport: LocalTransport) -> None:
    found: Transport = transport
    assert (found.board, found.python) == ("local", sys.executable)
    found.close()


def test_command_runs_in_the_board_directory(transport: LocalTransport, tmp_path: Path) -> None:
    done = transport.run(
        python("import os, sys; print(os.getcwd()); sys.stderr.write('note'); sys.exit(3)"),
        deadline=SECONDS,
    )
    assert done.exit_code == 3
    assert done.stdout.decode() == f"{tmp_path / 'board'}\n"
    assert done.stderr == b"note"


def test_environment_stays_behind(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    done = transport.run(python("import os; print(sorted(os.environ))"), deadline=SECONDS)
    assert b"PYTHONPATH" not in done.stdout


def test_much_output_on_both_streams(transport: LocalTransport) -> None:
    code = (
        "import sys\nfor _ in range(200):\n sys.stdout.write('o'*999)\n sys.stderr.write('e'*999)"
    )
    done = transport.run(python(code), deadline=SECONDS)
    assert (len(done.stdout), len(done.stderr)) == (199_800, 199_800)


def test_lines_are_streamed_as_they_come(transport: LocalTransport) -> None:
    code = (
        "import sys\nfor i in range(3):\n sys.stderr.write(f'{i}\\n'); sys.stderr.flush()\n"
        "open('done', 'w')\nimport time\nwhile True: time.sleep(9)"
    )
    seen: list[str] = []
    with pytest.raises(UnreachableError):
        transport.run(python(code), deadline=1, on_line=seen.append)
    assert seen == ["0", "1", "2"]


def test_deadline_ends_children_too(transport: LocalTransport, tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(UnreachableError, match=r"expected 'sleep .*' to end within 0\.3 s"):
        transport.run(["sh", "-c", "sleep 30 & sleep 30"], deadline=0.3)
    assert time.monotonic() - start < 5


def test_deadline_that_is_kept_kills_nothing(transport: LocalTransport) -> None:
    before = threading.active_count()
    assert transport.run(["true"], deadline=SECONDS).exit_code == 0
    assert threading.active_count() == before


def test_killed_command_says_so(transport: LocalTransport) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert transport.run(python(code), deadline=SECONDS).exit_code == -11


def test_no_such_program(transport: LocalTransport) -> None:
    with pytest.raises(UnreachableError, match="expected to run /no/python, found: No such file"):
        transport.run(["/no/python"], deadline=SECONDS)


def test_files_go_and_come(transport: LocalTransport) -> None:
    data = os.urandom(3 << 20)
    sent: list[int] = []
    got: list[int] = []
    transport.put(data, "a/b/file", deadline=SECONDS, on_bytes=sent.append)
    assert transport.get("a/b/file", deadline=SECONDS, on_bytes=got.append) == data
    assert sum(sent) == sum(got) == len(data)
    assert len(sent) > 1
    transport.put(b"", "a/b/file", deadline=SECONDS)
    assert transport.get("a/b/file", deadline=SECONDS) == b""


def test_remove_takes_files_folders_and_nothing(transport: LocalTransport, tmp_path: Path) -> None:
    transport.put(b"x", "a/b", deadline=SECONDS)
    (tmp_path / "board" / "link").symlink_to(tmp_path)
    for path in ("a", "a", "link"):
        transport.remove(path, deadline=SECONDS)
    assert list((tmp_path / "board").iterdir()) == []
    assert tmp_path.exists()


def test_disk_full_leaves_the_old_file(transport: LocalTransport, tmp_path: Path) -> None:
    transport.put(b"old", "file", deadline=SECONDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(TransferError, match=r"board 'local': file: expected to .*too large"):
            transport.put(bytes(5000), "file", deadline=SECONDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.read_bytes() for p in (tmp_path / "board").iterdir()] == [b"old"]


def test_missing_file(transport: LocalTransport) -> None:
    with pytest.raises(TransferError, match="none: expected to read"):
        transport.get("none", deadline=SECONDS)


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnreachableError, match="set EDGEKIT_HOME"):
        LocalTransport(tmp_path / "file" / "board")

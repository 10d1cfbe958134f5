"""Starting the runtime from bytecode cached by an earlier start."""

from __future__ import annotations

import json
import marshal
import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgekit.device.runtime.bytecode import FOLDER, archive_sum
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, runtime_pyz

# Always compiled: the .pyz's entry point and the modules that load cached bytecode.
_ALWAYS = {
    "__main__.py",
    "edgekit/device/__init__.py",
    "edgekit/device/runtime/__init__.py",
    "edgekit/device/runtime/bytecode.py",
}
# Lists the compiled files of the .pyz on stderr; otherwise starts like `python runtime.pyz`.
_WATCH = """import runpy, sys
path = sys.argv[1]
def see(event, found):
    name = str(found[1]) if event == "compile" else ""
    if name.startswith(path):
        sys.stderr.write(name[len(path) + 1:] + chr(10))
sys.addaudithook(see)
del sys.argv[0]
runpy.run_path(path, run_name="__main__")
"""
_IMPORT = """import sys
sys.path.insert(0, sys.argv[0])
import edgekit_runtime
"""
_EVIL = "print('planted')"


@dataclass(frozen=True)
class Start:
    answer: str
    compiled: frozenset[str]


class Board:
    """A board's folder with a runtime sent by a host."""

    def __init__(self, root: Path) -> None:
        self.runtime = root / "runtime" / "sent.pyz"
        self.folder = root / FOLDER
        self.runtime.parent.mkdir(parents=True)
        self.folder.mkdir(mode=0o700)
        self.runtime.write_bytes(runtime_pyz())

    def start(
        self,
        *command: str,
        program: str = _WATCH,
        before: str = "",
        options: Sequence[str] = (),
        check: bool = True,
    ) -> Start:
        """Runs a command (default `status`); returns its output and the compiled files."""
        python = [sys.executable, "-I", "-S", *options, "-c", before + program, str(self.runtime)]
        words = ["--root", str(self.folder.parent), *(command or ("status", "--quick"))]
        done = subprocess.run([*python, *words], capture_output=True, text=True, check=check)
        return Start(done.stdout, frozenset(done.stderr.split()))

    def kept(self) -> Path:
        (path,) = self.folder.iterdir()
        return path

    def plant(self, name: str, code: str) -> Path:
        """Replaces a module's code in the cache, like an attacker who knows the format."""
        path = self.kept()
        modules = marshal.loads(path.read_bytes()[4:])
        modules[name] = (modules[name][0], marshal.dumps(compile(code, "planted", "exec")))
        body = marshal.dumps(modules)
        path.write_bytes(zlib.crc32(body, zlib.crc32(path.name.encode())).to_bytes(4, "big") + body)
        return path


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "board")


@pytest.fixture
def warm(board: Board) -> Board:
    """A board whose runtime has been started once."""
    board.start()
    return board


def test_second_start_compiles_nothing_again(board: Board) -> None:
    first, second = board.start(), board.start()
    assert "edgekit/device/runtime/agent/status.py" in first.compiled
    assert second.compiled == _ALWAYS
    assert json.loads(second.answer) == json.loads(first.answer)


def test_other_command_adds_what_it_needs(warm: Board) -> None:
    added = warm.start("probe").compiled - _ALWAYS
    assert "edgekit/device/runtime/agent/probe.py" in added
    assert "edgekit/device/runtime/agent/commands.py" not in added
    assert warm.start("probe").compiled == _ALWAYS
    assert warm.start().compiled == _ALWAYS


def test_applications_start_from_bytecode_too(board: Board) -> None:
    watch = _WATCH.replace('runpy.run_path(path, run_name="__main__")', _IMPORT)
    assert "edgekit/device/runtime/application/model.py" in board.start(program=watch).compiled
    second = board.start(program=watch).compiled
    assert second == _ALWAYS - {"__main__.py"} | {"edgekit_runtime.py"}


def test_tracebacks_still_show_the_source(warm: Board) -> None:
    program = (
        "import sys, traceback; sys.path.insert(0, sys.argv[1])\n"
        "from edgekit.device.runtime.bytecode import use_bytecode; use_bytecode()\n"
        "from edgekit.device.runtime.agent.arguments import positive\n"
        "try: positive('0')\n"
        "except Exception: print(traceback.format_exc())\n"
    )
    assert "    raise " in warm.start(program=program).answer


@pytest.mark.slow
def test_damaged_bytecode_is_never_run_and_made_again(warm: Board) -> None:
    whole = warm.kept().read_bytes()
    places = (0, 3, 4, 5, 40, 5000, len(whole) - 1)
    damages = [whole[:i] + bytes([whole[i] ^ 16]) + whole[i + 1 :] for i in places]
    for damaged in (*damages, b"", whole[:3], whole[:-1], whole + b"!", bytes(len(whole))):
        warm.kept().write_bytes(damaged)
        assert "edgekit/device/runtime/agent/status.py" in warm.start().compiled
    assert warm.start().compiled == _ALWAYS


def test_bytecode_of_another_runtime_is_never_run(warm: Board) -> None:
    path = warm.plant("edgekit.device.runtime.errors", _EVIL)
    warm.runtime.write_bytes(runtime_pyz()[:-2] + b"\1\0!")  # a zip comment
    size_and_crc = archive_sum(warm.runtime)
    path.rename(path.with_name(f"{size_and_crc}.{path.name.partition('.')[2]}"))
    assert "planted" not in warm.start().answer


def test_each_python_has_bytecode_of_its_own(warm: Board) -> None:
    """`-O` replaces a second Python: its bytecode differs."""
    assert "edgekit/device/runtime/agent/status.py" in warm.start(options=["-O"]).compiled
    assert len(list(warm.folder.iterdir())) == 2
    assert warm.start().compiled == warm.start(options=["-O"]).compiled == _ALWAYS


def _let_others_write(board: Board) -> None:
    board.kept().chmod(0o620)


def _let_others_plant(board: Board) -> None:
    board.folder.chmod(0o702)


def _link_file(board: Board) -> None:
    kept = board.kept()
    kept.symlink_to(kept.rename(board.folder.parent / "elsewhere"))


def _link_folder(board: Board) -> None:
    board.folder.symlink_to(board.folder.rename(board.folder.parent / "elsewhere"))


def _give_away(board: Board) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    os.chown(board.kept(), 12345, -1)


def test_what_this_user_alone_can_have_written_is_run(warm: Board) -> None:
    """Positive control for the next test: planted bytecode does run."""
    warm.plant("edgekit.device.runtime.errors", _EVIL)
    assert "planted" in warm.start(check=False).answer


@pytest.mark.parametrize(
    "open_up", [_let_others_write, _let_others_plant, _link_file, _link_folder, _give_away]
)
def test_what_another_user_can_have_written_is_never_run(
    warm: Board, open_up: Callable[[Board], None]
) -> None:
    warm.plant("edgekit.device.runtime.errors", _EVIL)
    open_up(warm)
    start = warm.start()
    assert json.loads(start.answer)["schema"] == "edgekit.runtime.status/1"
    assert "edgekit/device/runtime/errors.py" in start.compiled


@pytest.mark.parametrize("at", [0, 1000])
def test_full_disk_costs_time_and_nothing_else(board: Board, at: int) -> None:
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({at}, {at}))\n"
    assert "edgekit/device/runtime/agent/status.py" in board.start(before=full).compiled
    assert not any(board.folder.iterdir())


def test_board_without_a_folder_for_bytecode_starts_without(board: Board) -> None:
    board.folder.rmdir()
    assert board.start() == board.start()
    assert not board.folder.exists()


def test_what_a_killed_start_left_is_written_over(board: Board) -> None:
    board.start()
    kept = board.kept()
    (board.folder / f".{kept.name}").write_bytes(b"half")
    kept.unlink()
    board.start()
    assert board.kept() == kept


@pytest.mark.slow
def test_deploys_share_bytecode_and_remove_what_no_runtime_needs(
    device: Device, tiny: Callable[..., Bundle], board_root: Path
) -> None:
    device.deploy(tiny())
    (now,) = (board_root / FOLDER).iterdir()
    for stale in ("1-00000000.cpython-39-0-0", f".{now.name}"):
        (board_root / FOLDER / stale).touch()
    device.named("wake").deploy(tiny('TINY_NAME="other"'))
    (kept,) = (board_root / FOLDER).iterdir()
    assert kept.name.startswith(archive_sum(board_root / "current" / "runtime.pyz") + ".")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700

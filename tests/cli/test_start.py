"""Startup: help, version, and the format and exit codes of errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from edgekit.device.runtime.errors import BusyError
from edgekit.host import errors
from edgekit.host.cli.app import HEADINGS, app, explain
from edgekit.host.cli.meant import command_tree

SOURCES = Path(__file__).parents[2] / "src"


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, as the words a user types."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


def groups(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every group of commands."""
    yield path
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from groups(command, (*path, name))


ALL_COMMANDS = sorted(commands(command_tree(app)))
GROUPS = sorted(groups(command_tree(app)))


def test_commands_are_those_of_the_specification() -> None:
    shown = [" ".join(c) for c in ALL_COMMANDS]
    assert [name for name in shown if not name.startswith("lab ")] == [
        "app install",
        "app library",
        "app new",
        "app start",
        "app status",
        "app stop",
        "bench model",
        "board add",
        "board down",
        "board remove",
        "board up",
        "boards",
        "cache",
        "choose",
        "compare",
        "compile",
        "console",
        "deploy",
        "doctor",
        "estimate",
        "fleet add",
        "fleet deploy",
        "fleet enroll",
        "fleet serve",
        "inspect",
        "lock",
        "profile compare",
        "profile list",
        "profile pull",
        "profile report",
        "prune",
        "quantize",
        "remove",
        "rollback",
        "run",
        "status",
    ]
    assert [name.removeprefix("lab ") for name in shown if name.startswith("lab ")] == [
        "bench gemm",
        "bench nna",
        "bench sparse",
        "kb build",
        "kb lookup",
        "tune cost",
        "tune gemm",
        "tune model",
        "tune sparse",
    ]
    assert len(shown) <= 45


def test_every_command_has_one_heading() -> None:
    listed = [name for names in HEADINGS.values() for name in names]
    assert sorted(listed) == sorted(command_tree(app).commands)  # type: ignore[attr-defined]


def helps(group: Any, path: str = "edgekit") -> Iterator[tuple[str, str]]:
    """Every help text, with the command or option it belongs to."""
    yield path, group.help
    for parameter in group.params:
        yield f"{path} {parameter.opts[-1]}", parameter.help
    for name, command in getattr(group, "commands", {}).items():
        yield from helps(command, f"{path} {name}")


def test_each_help_text_is_one_sentence_of_one_line() -> None:
    for where, text in helps(command_tree(app)):
        wrong = f"{where}: a help text is one sentence of at most 80 columns, found {text!r}"
        assert text and len(text) <= 80 and "\n" not in text, wrong
        assert text.endswith(".") and ". " not in text, wrong


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_lists_of_commands_cut_no_help_text(edgekit: Any, group: tuple[str, ...]) -> None:
    lines = edgekit(*group, "--help").out.splitlines()
    assert not [line for line in lines if line.endswith("...") and "Usage:" not in line]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", ALL_COMMANDS, ids=" ".join)
def test_help_shows_an_example_and_json(edgekit: Any, command: tuple[str, ...]) -> None:
    done = edgekit(*command, "--help")
    assert done.code == 0
    _, _, shown = done.out.partition("Examples:\n")
    assert f"edgekit {' '.join(command)}" in shown
    assert "--json" in done.out


def test_no_command_shows_help(edgekit: Any) -> None:
    done = edgekit()
    assert done.code == 0
    assert done.out.startswith("Usage: edgekit")


def test_version(edgekit: Any) -> None:
    assert edgekit("--version").out.startswith("edgekit 0.")


def test_help_imports_nothing_heavy() -> None:
    """Imports dominate the startup time of help; the module count is the same on any machine with
    one version of Python."""
    most = 245 if sys.version_info < (3, 14) else 255
    heavy = {"numpy", "rich", "tflite", "msgspec", "ziglang", "hashlib", "statistics"}
    program = (
        "import sys; from edgekit.host.cli.main import main; main(['--help']);"
        f"print(sorted({{m.partition('.')[0] for m in sys.modules}} & {heavy}),"
        f" len(sys.modules) > {most})"
    )
    assert _printed(program).splitlines()[-1] == "[] False"


def test_talking_to_a_board_imports_no_importer() -> None:
    """`run` and `status` import this module first."""
    program = (
        "import sys, edgekit.host.deploy.api;"
        "print(sorted(m for m in sys.modules if m == 'tflite' or m.startswith("
        "('edgekit.host.compiler.frontends', 'edgekit.host.compiler.ir.ops'))))"
    )
    assert _printed(program) == "[]\n"


def test_a_model_is_imported_without_the_code_of_other_formats() -> None:
    model = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"
    program = (
        "import sys; from pathlib import Path;"
        "from edgekit.host.compiler.frontends import import_model;"
        f"import_model(Path({str(model)!r}));"
        "start = 'edgekit.host.compiler.frontends.';"
        "print([m for m in sys.modules if m.startswith((start + 'onnx.', start + 'caffe.')) and"
        " m.endswith(('operators', 'importer'))])"
    )
    assert _printed(program) == "[]\n"


def _printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCES)},
    )
    return done.stdout


def _new_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs edgekit in a process of its own, in which warnings are errors."""
    program = "from edgekit.host.cli.main import run; run()"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SOURCES)},
    )


def test_start_is_free_of_warnings() -> None:
    done = _new_process()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nosuch"], "nosuch"),
        (["boards", "--nosuch"], "--nosuch"),
        (["bench"], "edgekit bench --help"),
        (["run"], "--input"),
        (["bench", "model", "x.tflite", "--runs", "many"], "--runs"),
    ],
)
def test_usage_errors_are_one_line(edgekit: Any, arguments: list[str], expected: str) -> None:
    done = edgekit(*arguments)
    assert (done.code, done.out) == (2, "")
    assert expected in done.complaint
    assert "--help" in done.complaint


def test_help_of_an_unknown_command_is_one_line() -> None:
    """In a process of its own: an earlier command would have opened the log."""
    done = _new_process("nosuch", "--help")
    line = "edgekit: expected a command, found 'nosuch'; see edgekit --help\n"
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.EdgekitError("x"), 1),
        (errors.InputError("x"), 2),
        (errors.UnreachableError("x"), 3),
        (errors.AuthenticationError("x"), 4),
        (errors.IncompatibleError("x"), 5),
        (errors.TransferError("x"), 6),
        (errors.RolledBackError("x"), 7),
        (errors.PartialError("x"), 8),
        (errors.SlowerError("x"), 9),
        (BusyError("x"), 6),
        (KeyError("x"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_code_by_kind_of_error(error: Exception, code: int) -> None:
    try:
        raise error
    except Exception as raised:
        assert explain(raised)[1] == code


def failing(error: BaseException) -> typer.Typer:
    """An application whose only command raises `error`."""
    found = typer.Typer(pretty_exceptions_enable=False)

    @found.command()
    def boards() -> None:
        raise error

    return found


def test_a_bug_names_itself_and_the_way_to_the_traceback(edgekit: Any) -> None:
    broken = failing(ZeroDivisionError("a\nb"))
    done = edgekit(app=broken)
    assert done.code == 1
    assert "bug: ZeroDivisionError: a b (test_start.py:" in done.complaint
    assert "--debug" in done.complaint
    assert "Traceback" in edgekit("--debug", app=broken).err


def test_control_characters_of_names_do_not_reach_the_terminal(edgekit: Any) -> None:
    done = edgekit("compile", "a\x1b[31m\nb.tflite")
    assert done.code == 2
    assert "\x1b" not in done.complaint


def test_interrupt_exits_130(edgekit: Any) -> None:
    done = edgekit(app=failing(KeyboardInterrupt()))
    assert (done.code, done.out, done.err) == (130, "", "")


def test_windows_is_one_line_about_wsl() -> None:
    """Also if modules that Windows lacks cannot be imported."""
    program = (
        "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = sys.modules['termios'] = None;"
        "from edgekit.host.cli.main import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "run it in WSL 2" in done.stderr

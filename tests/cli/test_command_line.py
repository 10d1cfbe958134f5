"""Standard command-line behavior: help, completion, pipes, signals, colors."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from edgekit.host.cache import cached
from edgekit.host.cli.compile_options import takes_compile_options, words_of
from edgekit.host.cli.meant import command_tree
from edgekit.host.compiler.asked import ASKED
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from tests.support.fake_qemu import fake_virtual_boards
from tests.support.terminal import shown_on_terminal

SOURCES = Path(__file__).parents[2] / "src"
RUN = [sys.executable, "-c", "from edgekit.host.cli.main import run; run()"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCES), **more}


def completed(words: str) -> list[str]:
    """Completions offered to bash for the last of `words`."""
    parts = words.split(" ")
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(parts) - 1)}
    done = subprocess.run(
        RUN,
        env=environment(_EDGEKIT_COMPLETE="complete_bash", **asked),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("command", [(), ("compile",), ("bench", "model"), ("cache",)])
def test_short_help_is_the_long_one(edgekit: Any, command: tuple[str, ...]) -> None:
    assert edgekit(*command, "-h").out == edgekit(*command, "--help").out != ""


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_for_each_shell(edgekit: Any, shell: str) -> None:
    done = subprocess.run(
        [*RUN, "--show-completion", shell],
        env=environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "_EDGEKIT_COMPLETE" in done.stdout


def test_completion_is_installed_for_the_shell(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RUN, "--install-completion", "bash"],
        env=environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1", HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "edgekit" in (tmp_path / ".bashrc").read_text()


@pytest.mark.slow
def test_boards_profiles_and_models_are_completed(home: Path, face_model: Path) -> None:
    (home / "edgekit.toml").write_text('[boards.rpi-lab]\nprofile = "rpi4"\nhost = "h"\n')
    (home / "models").mkdir()
    (home / "models" / "face.tflite").touch()
    (home / "models" / "notes.txt").touch()
    assert completed("edgekit deploy --board rpi") == [
        "rpi-lab",
        "rpi-zero2w",
        "rpi3",
        "rpi4",
        "rpi5",
    ]
    assert completed("edgekit board add x --profile visi") == ["visionfive2"]
    assert completed("edgekit compile mod") == ["models/face.tflite"]
    assert "compile" in completed("edgekit co")


def test_completion_says_nothing_of_a_broken_inventory(home: Path) -> None:
    (home / "edgekit.toml").write_text("[[[")
    assert completed("edgekit status --board loc") == ["local"]


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder"])
@pytest.mark.parametrize(
    "command", [("compile",), ("inspect",), ("lab", "tune", "gemm", "--shapes")]
)
def test_special_files_are_refused(
    edgekit: Any, home: Path, kind: str, command: tuple[str, ...]
) -> None:
    path = Path("/dev/zero") if kind == "device" else Path("it.tflite")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "folder":
        path.mkdir()
    assert not stat.S_ISREG(path.stat().st_mode)
    done = edgekit(*command, path)
    assert (done.code, done.out) == (2, "")
    assert f"found a {'pipe' if kind == 'fifo' else kind}; name a regular file" in done.complaint


def piped(*arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a command whose stdout is closed."""
    with subprocess.Popen(
        [*RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        said = process.stderr.read()
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("boards", "--json"), ("boards",), ("compile", "-h")])
def test_a_closed_pipe_ends_quietly(home: Path, arguments: tuple[str, ...]) -> None:
    assert piped(*arguments) == (141, "")


@pytest.mark.slow
def test_a_deploy_goes_on_when_nobody_listens(home: Path, edgekit: Any, face_model: Path) -> None:
    model = face_model.with_name("okay_nabu.tflite")
    with subprocess.Popen(
        [*RUN, "deploy", str(model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
    ) as process:
        assert process.stdout
        process.stdout.close()
    assert process.returncode == 141
    assert edgekit("status", "--json").document["current"]["model"] == "okay_nabu"


def test_a_full_disk_behind_stdout_is_one_line(home: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*RUN, "boards"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


@pytest.mark.parametrize("module", ["typer", "edgekit.host.cli.options", "edgekit.host.errors"])
def test_an_interrupt_during_imports_is_quiet(tmp_path: Path, module: str) -> None:
    program = (
        "import builtins, os, signal, sys\n"
        "real = builtins.__import__\n"
        "def slow(name, *rest):\n"
        f"    if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "from edgekit.host.cli.main import run\n"
        "builtins.__import__ = slow\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "boards"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_verbose_logs_each_step_wherever_it_is_given(edgekit: Any) -> None:
    quiet = edgekit("status")
    for line in (("--verbose", "status"), ("status", "--verbose")):
        done = edgekit(*line)
        assert (done.code, done.out) == (quiet.code, quiet.out)
        assert "edgekit: board local: status" in done.err.splitlines()


@pytest.mark.slow
def test_verdicts_are_colored_on_a_terminal_unless_unwanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    green = "\x1b[32m"
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert green in shown_on_terminal("doctor")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in shown_on_terminal("doctor")


@pytest.mark.slow
def test_no_word_of_a_table_is_cut_on_a_narrow_terminal() -> None:
    shown = shown_on_terminal("boards", columns=40)
    assert "…" not in shown
    for whole in ("rpi-zero2w", "spacemit-x60", "generic-aarch64", "avx512vnni"):
        assert whole in shown


def test_the_cache_is_shown_and_emptied_by_kind(
    edgekit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "other" / "cache"
    for name in ("objects", "golden"):
        (cache / name).mkdir(parents=True)
        (cache / name / "one").write_bytes(b"x" * 9000)
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "other"))
    shown = edgekit("cache", "--json").document
    assert (shown["schema"], shown["path"]) == ("edgekit.cache/1", str(cache))
    assert {k["kind"]: k["files"] for k in shown["kinds"]} == {"golden": 1, "objects": 1}
    assert all(9000 <= k["bytes"] < 20000 for k in shown["kinds"])
    assert str(cache) in edgekit("cache").out
    assert "golden" in edgekit("cache", "--clean", "golden").out
    assert [p.name for p in cache.iterdir()] == ["objects"]
    done = edgekit("cache", "--clean", "nosuch")
    assert (done.code, "objects" in done.complaint) == (2, True)
    assert edgekit("cache", "--clean", "--json").document["bytes"] >= 9000
    assert list(cache.iterdir()) == []
    assert edgekit("cache", "--clean").code == 0


def test_each_folder_of_the_cache_is_described(
    edgekit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Path(__file__).parents[2] / "host"
    sources = "".join(path.read_text() for path in host.rglob("*.py"))
    for name in re.findall(r'cache_folder\(\) / "(\w+)"', sources):
        (tmp_path / "cache" / name).mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    shown = edgekit("cache").out
    assert "jobs" in shown and "another version" not in shown


def test_a_cache_that_is_in_use_is_not_emptied(
    edgekit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgekit.host.common.checked_files import in_use
    from edgekit.host.common.files import locked

    cache = tmp_path / "other" / "cache"
    for name in ("objects", "boards", ".golden.4194305"):
        (cache / name).mkdir(parents=True)
        (cache / name / "one").write_bytes(b"x")
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "other"))
    for kind, lock in (
        ("objects", in_use(cache / "objects")),
        ("boards", locked(cache / "boards" / "arm64.lock")),
    ):
        with lock:
            done = edgekit("cache", "--clean")
        assert (done.code, f"nobody to use '{kind}'" in done.complaint) == (6, True)
        assert (cache / "objects" / "one").exists()
        assert (cache / "boards" / "one").exists()
    assert edgekit("cache", "--clean").code == 0
    assert list(cache.iterdir()) == []


def test_images_of_boards_that_are_up_stay(
    edgekit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_virtual_boards(tmp_path / "virtual", monkeypatch, "a57")
    assert edgekit("board", "up", "a57").code == 0
    try:
        done = edgekit("cache", "--clean")
        assert (done.code, "found a57" in done.complaint) == (2, True)
    finally:
        edgekit("board", "down")
    assert [kind.kind for kind in cached()] == ["boards"]


def test_the_api_lists_itself() -> None:
    import edgekit.host

    assert dir(edgekit.host) == [
        "Bundle",
        "Device",
        "compile_kernels",
        "compile_model",
        "connect",
    ]


@pytest.mark.slow
def test_a_model_is_timed_as_it_would_be_compiled(edgekit: Any, face_model: Path) -> None:
    options = (face_model.with_name("okay_nabu.tflite"), "--memory-limit", "64MiB")
    done = edgekit("bench", "model", "--runs", "2", *options, "--explain", "why.json")
    assert done.code == 0, done.err
    assert "order" in json.loads(Path("why.json").read_text())


@pytest.mark.parametrize("command", ["compile", "deploy", "run", "estimate", "bench model"])
def test_what_compiles_has_every_option_of_a_compile(edgekit: Any, command: str) -> None:
    helped = edgekit(*command.split(), "--help").out
    named = "recognizer" if command == "run" else ""  # there, of another release
    options = [f for f in fields(CompileOptions) if ASKED in f.metadata and f.name != named]
    assert len(options) >= 16
    for each in options:
        asked = each.metadata[ASKED]
        name = asked.flag or f"--{each.name.replace('_', '-')}"
        own = ("threads", "cluster")  # apply to this run when the command makes no release
        assert (f"  {name} " in helped) == (
            command == "compile"
            or each.name in own
            or not (asked.compile_only or asked.release_only)
            or (asked.release_only and command == "deploy")
        )


def test_options_are_sent_to_workers_as_they_were_given() -> None:
    @takes_compile_options()
    def command(options: CompileOptions = DEFAULT_OPTIONS) -> None:
        found.append(options)

    found: list[CompileOptions] = []
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    shapes = ("--input-shape", "x=1,8", "--input-shape", "x=2,8", "--state", "h=y")
    weights = ("--weights", "int4", "--group-size", "64", "--memory-limit", "1KiB")
    run = command_tree(app)
    run.main([*shapes, *weights, "--precision", "f16"], standalone_mode=False)
    run.main(words_of(found[0]), standalone_mode=False)
    assert found[0] == found[1]
    assert (found[0].memory_limit, found[0].more_shapes) == (1024, ({"x": (2, 8)},))
    assert words_of(DEFAULT_OPTIONS) == []


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((12.3456, 1.0), ("12.346", "1.000", "ms")),
        ((0.0456, 0.04, 0.1), ("45.60", "40.00", "100.00", "µs")),
        ((0.0,), ("0.000", "ms")),
    ],
)
def test_short_times_are_shown_in_microseconds(
    values: tuple[float, ...], shown: tuple[str, ...]
) -> None:
    from edgekit.host.cli.output import duration, milliseconds

    assert duration(*values) == shown
    assert milliseconds(0.00123) == "0.00123"

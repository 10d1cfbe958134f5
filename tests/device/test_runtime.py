"""The runtime as a board runs it: a single .pyz, a bare interpreter, JSON output."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.commands import main
from edgekit.device.runtime.agent.probe import c_library
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import runtime_pyz
from edgekit.host.deploy.release.runtime import document_of
from edgekit.host.deploy.transport import Completed
from edgekit.host.errors import IncompatibleError

OLDEST = (3, 9)
# EDGEKIT_PYTHONS adds interpreters, separated by colons.
PYTHONS = [sys.executable, *filter(None, os.environ.get("EDGEKIT_PYTHONS", "").split(":"))]
X = np.array([1, 2, 3, 4], np.float32)
# The agent's modules that `status` needs.
_STATUS = {
    *("app_commands", "arguments", "commands", "fetch_commands", "measuring_commands"),
    "profile_commands",
    *("application", "kernels", "manifest", "release_files", "specs", "strict"),
    *("counters", "integrity", "process", "recovery", "session", "shadow_spec", "status", "store"),
    "task",
}


@dataclass(frozen=True)
class Answer:
    code: int
    document: Any
    stderr: str


@pytest.fixture
def root(tmp_path: Path, tiny_device: Device) -> Path:
    """The folder of a board running the tiny model."""
    return tmp_path / "board"


def call(root: Path, *arguments: str | Path, python: str = sys.executable) -> Answer:
    """Runs the current release's runtime outside the repository, with an empty environment."""
    command = [python, "-S", "-E", root / "current" / "runtime.pyz", "--root", root, *arguments]
    done = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    return Answer(done.returncode, json.loads(done.stdout), done.stderr)


@pytest.mark.parametrize("python", PYTHONS)
def test_commands_need_only_the_standard_library(root: Path, python: str) -> None:
    np.savez(root / "x.npz", x=X)
    for arguments in (
        ("probe",),
        ("status",),
        ("health",),
        ("bench", "--count", "3"),
        ("run", "--input", root / "x.npz", "--output", root / "y.npz"),
    ):
        answer = call(root, *arguments, python=python)
        assert (answer.code, answer.stderr) == (0, "")
        assert answer.document["schema"].startswith("edgekit.")
    with np.load(root / "y.npz") as archive:
        np.testing.assert_array_equal(archive["y"], 2 * X + 1)


def test_numpy_and_host_are_never_imported(root: Path) -> None:
    (root / "blocked" / "numpy").mkdir(parents=True)
    (root / "blocked" / "numpy" / "__init__.py").write_text("raise SystemExit('numpy!')")
    np.savez(root / "x.npz", x=X)
    files = ["--input", str(root / "x.npz"), "--output", str(root / "y.npz")]
    code = (
        f"import sys; sys.path[:0] = [{str(root / 'blocked')!r}, "
        f"{str(root / 'current' / 'runtime.pyz')!r}]\n"
        "from edgekit.device.runtime.agent.commands import main\n"
        f"code = main(['--root', {str(root)!r}, 'run', *{files!r}])\n"
        "assert not [m for m in sys.modules if m.startswith(('numpy', 'edgekit.host'))]\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("command", ["status", "verify"])
def test_a_command_that_runs_no_model_loads_only_what_it_needs(root: Path, command: str) -> None:
    """Most of a start is imports."""
    code = (
        f"import sys; sys.path.insert(0, {str(root / 'current' / 'runtime.pyz')!r})\n"
        "from edgekit.device.runtime.agent.commands import main\n"
        f"main(['--root', {str(root)!r}, {command!r}])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    slow = {"ctypes", "shutil", "signal", "subprocess", "threading"}
    if sys.version_info < (3, 14):  # whose argparse loads them
        slow |= {"dataclasses", "inspect"}
    assert slow & loaded == set()
    agent = "edgekit.device.runtime.agent."
    assert {name.removeprefix(agent) for name in loaded if name.startswith(agent)} == _STATUS
    assert len(loaded) < (115 if sys.version_info < (3, 14) else 135)


@pytest.mark.parametrize("before", [(), ("--root", "status")])
def test_an_unknown_command_is_answered_with_all(
    before: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*before, "nosuch"]) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "'nosuch' (choose from" in message
    assert {"probe", "status", "bench", "profile", "app-log"} <= set(re.findall("[a-z-]+", message))


def test_a_python_without_a_module_is_named(root: Path) -> None:
    """Distributions split the standard library into packages."""
    current = root / "current"
    for module, code in (("ctypes", 5), ("json", 1)):
        blocked = f"import sys; sys.modules[{module!r}] = None; sys.argv[1:] = ['probe']; "
        run = f"import runpy; runpy.run_path({str(current / 'runtime.pyz')!r}, run_name='__main__')"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", blocked + run], capture_output=True, check=False
        )
        assert done.returncode == code
        with pytest.raises(
            IncompatibleError, match=rf"standard library, found: .*{module}"
        ) as caught:
            document_of("b", "probe", Completed(code, done.stdout, done.stderr))
        assert "python3" in str(caught.value)


def test_probe_tells_of_this_machine(root: Path) -> None:
    found = call(root, "probe").document
    assert found["machine"] == os.uname().machine
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["disk_free_bytes"] > 0
    assert found["core_names"]
    assert found["ssh_keygen"] == (shutil.which("ssh-keygen") is not None)
    assert (found["folder"], found["folder_trouble"]) == (str(root), "")
    assert found["c_library"] == " ".join(platform.libc_ver())
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_c_library_is_recognized(tmp_path: Path) -> None:
    def refuse(_: str) -> str:
        raise ValueError

    def not_found(_: str) -> object:
        raise OSError

    assert c_library(lambda _: "glibc 2.36") == "glibc 2.36"
    assert c_library(refuse, not_found, tmp_path) == "another"
    (tmp_path / "ld-musl-aarch64.so.1").touch()
    assert c_library(refuse, not_found, tmp_path) == "musl"
    assert c_library(refuse, lambda _: None, tmp_path) == ""


def test_bench_document(root: Path) -> None:
    found = call(root, "bench", "--count", "7", "--threads", "2").document
    assert found["schema"] == "edgekit.runtime.bench/1"
    assert (found["model"], found["threads"], found["arena_bytes"]) == ("tiny", 2, 64)
    latency = found["latency_ms"]
    assert latency["n"] == 7
    assert found["load_ms"] > latency["median"]
    assert 0 <= latency["p10"] <= latency["median"] <= latency["p90"]
    assert [o["kernel"] for o in found["operators"]] == ["f32-mul", "f32-add"]
    assert sum(o["share"] for o in found["operators"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "message"),
    [
        ((), 2, "input", "required: command"),
        (("nonsense",), 2, "input", "invalid choice: 'nonsense'"),
        (("run", "--input", "/none.npz", "--output", "/x"), 2, "input", "No such file"),
        (("bench", "--count", "-3"), 2, "input", "expected a positive whole number, found '-3'"),
        (("bench", "--threads", "20000"), 2, "input", "expected 1 to 256, found '20000'"),
        (("apply", "../../etc"), 2, "input", "expected 16 hex digits, found '../../etc'"),
        (("activate", ""), 2, "input", "expected 16 hex digits, found ''"),
        (("apply", "0" * 16), 6, "transfer", "expected a readable file"),
        (("enroll", "--key", "ssh-rsa AAAA"), 2, "input", "found 'ssh-rsa AAAA'"),
        (("activate", "0" * 16), 6, "transfer", "expected it installed, found none; deploy it"),
        (("rollback",), 2, "input", "expected a previous release, found none"),
        (("golden", "--folder", "/none"), 6, "transfer", "expected a readable file"),
    ],
)
def test_errors_are_documents(
    root: Path, arguments: tuple[str, ...], code: int, kind: str, message: str
) -> None:
    answer = call(root, *arguments)
    assert (answer.code, answer.document["error"]["kind"]) == (code, kind)
    assert message in answer.document["error"]["message"]
    assert answer.stderr == ""


@pytest.mark.parametrize("command", ["spmv-bench", "spmm-bench", "outlier-bench"])
def test_a_request_is_not_optional(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "the following arguments are required: --request" in message


def test_nothing_deployed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path), "bench"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].startswith("expected a deployed model, found none")


def test_failing_system_calls_are_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pending.json").write_text("{}")
    (tmp_path / "lock").mkdir()
    assert main(["--root", str(tmp_path), "status"]) == 6
    out, err = capsys.readouterr()
    assert "Is a directory" in json.loads(out)["error"]["message"]
    assert err == ""


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules of edgekit.device imported anywhere in a module, including inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edgekit.device"):
            place = importlib.util.find_spec(node.module or "")
            if place and place.submodule_search_locations:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def test_archive_has_what_its_modules_import_and_no_more_and_is_old_enough() -> None:
    with zipfile.ZipFile(io.BytesIO(runtime_pyz())) as archive:
        names = archive.namelist()
        files = [name for name in names if name.endswith(".py")]
        trees = {n: ast.parse(archive.read(n), n, feature_version=OLDEST) for n in files}
    folders = names[2 : 2 + len(names) - len(files)]
    inside = ("", "/runtime", "/runtime/agent", "/runtime/application", "/runtime/arrays")
    assert folders == ["edgekit/", *(f"edgekit/device{p}/" for p in inside)]
    modules = {n.removesuffix(".py").replace("/", "."): tree for n, tree in trees.items()}
    offered = ("edgekit.device.__init__", "edgekit_runtime")
    packages = {f"{folder.replace('/', '.')}__init__" for folder in folders[1:]}
    wanted = {"__main__", "edgekit_runtime", *packages}
    wanted.update(
        m for name, tree in modules.items() if name not in offered for m in imported(tree)
    )
    assert set(modules) == wanted
    assert files == ["__main__.py", "edgekit_runtime.py", *sorted(files[2:])]


@pytest.mark.parametrize(("number", "code", "kind"), [(28, 5, "incompatible"), (5, 6, "transfer")])
def test_a_full_disk_is_distinguished_from_a_broken_one(
    capsys: pytest.CaptureFixture[str],
    number: int,
    code: int,
    kind: str,
) -> None:
    def fail(options: argparse.Namespace) -> None:
        raise OSError(number, os.strerror(number))

    assert main(["probe"], fail) == code
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == kind
    assert os.strerror(number) in error["message"]
    assert ("free some space" in error["message"]) == (code == 5)

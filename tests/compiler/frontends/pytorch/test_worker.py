"""What the process does that loads a network, with a module in the place of PyTorch that is empty
but for two names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.host.compiler.frontends.pytorch.export import _WORKER
from tests.support.patience import until

_TORCH = """
class nn:
    class Module:
        def eval(self): return self
def manual_seed(n): ...
"""
_FACTORIES = """
import os, time
def note(name):
    with open(os.path.join(os.path.dirname(__file__), name), "w") as file:
        file.write(str(os.getpid()))
def leaves():
    os._exit(0)
def dies():
    os.kill(os.getpid(), 11)
def prints():
    print("words", flush=True)
    os.write(1, b"bytes")
def has_inputs():
    import torch
    return torch.nn.Module(), [1.0]
def grows():
    bytearray(1 << 40)
def loops():
    note("started")
    while True: pass
def leaves_a_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note("daemon")
            time.sleep(600)
        os._exit(0)
    while not os.path.exists(os.path.join(os.path.dirname(__file__), "daemon")): pass
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """start(factory, shapes): the worker, which is asked to export what this function makes.
    `by`: the program that starts it."""
    (tmp_path / "torch.py").write_text(_TORCH)
    (tmp_path / "net.py").write_text(_FACTORIES)

    def start(
        factory: str, by: tuple[str, ...] = (), **shapes: list[int]
    ) -> subprocess.Popen[bytes]:
        request = {
            "kind": "module",
            "source": str(tmp_path / "net.py"),
            "factory": factory,
            "shapes": shapes,
            "folder": str(tmp_path),
            "cpu_seconds": 60,
            "memory_bytes": 1 << 32,
        }
        (tmp_path / "request.json").write_text(json.dumps(request))
        worker = (sys.executable, "-B", _WORKER, tmp_path / "request.json", tmp_path / "answer")
        return subprocess.Popen(
            [*by, *worker],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            stdout=subprocess.PIPE,
        )

    return start


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("factory", "code", "answer"),
    [
        ("leaves", 0, ""),
        ("dies", -signal.SIGSEGV, ""),
        ("prints", 0, "expected a torch.nn.Module"),
        ("grows", 0, "MemoryError"),
        ("leaves_a_daemon", 0, "expected a torch.nn.Module"),
    ],
)
def test_what_a_network_does_stays_in_the_process(
    start: Start, tmp_path: Path, factory: str, code: int, answer: str
) -> None:
    process = start(factory)
    out, _ = process.communicate()
    assert (process.returncode, out) == (code, b"")
    assert answer in (tmp_path / "answer").read_text()


def test_a_shape_that_would_not_be_used_is_refused(start: Start, tmp_path: Path) -> None:
    start("has_inputs", x=[1, 4]).communicate()
    answer = (tmp_path / "answer").read_text()
    assert "--input-shape: expected none, since has_inputs returns the inputs, found x" in answer


def test_a_daemon_of_a_network_ends_with_it(start: Start, tmp_path: Path) -> None:
    start("leaves_a_daemon").communicate()
    assert not _is_there(int((tmp_path / "daemon").read_text()))


def test_a_network_that_loops_is_ended(start: Start, tmp_path: Path) -> None:
    process = start("loops")
    network = _looping(tmp_path)
    process.terminate()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not _is_there(network)


def test_a_network_ends_with_edgekit(start: Start, tmp_path: Path) -> None:
    starts = "import subprocess, sys; subprocess.call(sys.argv[1:])"
    with start("loops", by=(sys.executable, "-c", starts)) as edgekit:
        network = _looping(tmp_path)
        edgekit.kill()
    until(lambda: not _is_there(network))


def _looping(folder: Path) -> int:
    """The process of the network that loops, once it does."""
    started = folder / "started"
    until(lambda: started.exists() and bool(started.read_text()))
    return int(started.read_text())

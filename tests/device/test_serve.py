"""The template `serve`: clients that are silent or an inference that hangs do not stop it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.host.compiler.toolchain.zig import kernels_folder
from tests.support.patience import AMPLE

SERVE = kernels_folder().parent / "templates" / "serve" / "main.py"
HANGS, WORKS = b"\1", b"\0"
# An inference hangs if its input is HANGS; otherwise its output is its input.
RUNTIME = """
import contextlib
import threading
from types import SimpleNamespace

from edgekit.device.runtime.application.sd_notify import Heartbeats

class Metrics:
    content_type = "text/plain"

    def __init__(self, model):
        self.count = 0

    @contextlib.contextmanager
    def inference(self):
        yield
        self.count += 1

    def text(self):
        return b"inferences %d\\n" % self.count

class DeviceError(Exception):
    pass

class Outputs(dict):
    release = "0" * 16

class Model:
    release, name = Outputs.release, "model"
    inputs = outputs = [SimpleNamespace(name="x", dtype="u8", shape=(1,), bytes=1)]
    signatures = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, inputs, signature=""):
        if inputs["x"] == b"\\1":
            threading.Event().wait()
        alive()
        return Outputs(x=inputs["x"])

def open(**options):
    return Model()

def alive(status=""):
    if status:
        print("serves", flush=True)
"""

Serve = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


@pytest.fixture
def serve(tmp_path: Path, port: int) -> Iterator[Serve]:
    (tmp_path / "edgekit_runtime.py").write_text(RUNTIME)
    with contextlib.ExitStack() as stack:

        def start(watchdog: str = "", *options: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, SERVE, "--http", str(port), *options],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(tmp_path), "WATCHDOG_USEC": watchdog},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"serves\n"
            return process

        yield start


class LocalConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("board", timeout=AMPLE)
        self._path = path

    def connect(self) -> None:
        self.sock = silent(self._path)


def silent(place: Path | int) -> socket.socket:
    """A client that says nothing yet."""
    if isinstance(place, int):
        return socket.create_connection(("127.0.0.1", place), AMPLE)
    client = socket.socket(socket.AF_UNIX)
    client.connect(os.path.relpath(place))  # waits for a place in the queue; with a timeout not
    client.settimeout(AMPLE)
    return client


def answered(connection: http.client.HTTPConnection) -> bytes:
    connection.request("POST", "/run", WORKS)
    with contextlib.closing(connection):
        return connection.getresponse().read()


@pytest.mark.slow
@pytest.mark.parametrize("local", [True, False])
def test_silent_clients_give_way_to_new_ones(
    serve: Serve, tmp_path: Path, port: int, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    serve()
    place = tmp_path / "serve.sock" if local else port
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(silent(place)) for _ in range(70)]
        for client in clients[:6]:
            assert client.recv(1) == b""  # the first ones were let go
        assert answered(LocalConnection(tmp_path / "serve.sock")) == WORKS
        assert answered(http.client.HTTPConnection("127.0.0.1", port, timeout=AMPLE)) == WORKS


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["1", "2"])
def test_an_inference_that_hangs_ends_the_server(serve: Serve, port: int, parallel: str) -> None:
    """Also while the other server is idle, and while other inferences end."""
    process = serve("1000000", "--parallel", parallel)
    with silent(port) as client:
        client.sendall(b"POST /run HTTP/1.1\r\nContent-Length: 1\r\n\r\n" + HANGS)
        while parallel == "2" and process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                answered(http.client.HTTPConnection("127.0.0.1", port, timeout=AMPLE))
        assert process.wait(AMPLE) == -signal.SIGABRT


@pytest.mark.slow
def test_prometheus_is_answered(serve: Serve, tmp_path: Path, port: int) -> None:
    serve()
    assert answered(http.client.HTTPConnection("127.0.0.1", port, timeout=AMPLE)) == WORKS
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=AMPLE)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "text/plain"
        assert answer.read() == b"inferences 1\n"

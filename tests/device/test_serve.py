"""The template `serve`: clients that are silent or an inference that hangs do not stop it."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import wave
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

class InputError(Exception):
    pass

class Text:
    # It does not end.

    prompt_tokens = tokens = 1
    finish = "length"

    def __iter__(self):
        while True:
            yield "x" * 1024

class Outputs(dict):
    release = "0" * 16

class Model:
    release, name = Outputs.release, "model"
    inputs = outputs = [SimpleNamespace(name="x", dtype="u8", shape=(1,), bytes=1)]
    signatures = {}
    task = SimpleNamespace(rate=16000, tokenizer="", kind="detect")

    def generate(self, prompt, **options):
        return Text()

    def transcribe(self, samples):
        raise InputError

    def detect(self, pixels, width, height):
        raise InputError

    def embed(self, samples):
        return [len(samples), samples[1]]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, inputs, signature=""):
        if inputs["x"] == b"\\1":
            threading.Event().wait()
        alive()
        return Outputs(x=inputs["x"])

def open(*_, **options):
    import openai_api

    openai_api.MOST_STREAM_SECONDS = 0.2
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
        connection.request("GET", "/metrics?name[]=inferences")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "text/plain"
        assert answer.read() == b"inferences 1\n"
        connection.request("GET", "/v1/models?limit=1")
        assert json.loads(connection.getresponse().read())["object"] == "list"


MIB = 1 << 20
DDS = b"DDS " + (124).to_bytes(4, "little") + bytes(120)  # no format of pixels that Pillow knows
SPEECH, CHAT = "/v1/audio/transcriptions", "/v1/completions"


def head(path: str, size: int, *lines: str) -> bytes:
    first = (f"POST {path} HTTP/1.1", f"Content-Length: {size}")
    return "\r\n".join((*first, *lines, "", "")).encode()


def said(port: int, request: bytes) -> bytes:
    """The server's answer, to which it closes the connection."""
    with silent(port) as client, contextlib.suppress(ConnectionError):
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))
    return b""


@pytest.mark.slow
def test_what_clients_send_takes_little_memory(serve: Serve, port: int) -> None:
    """Long heads, bodies that do not end, forms of millions of fields, documents and numbers that
    take the interpreter minutes."""
    serve()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(silent(port)) for _ in range(5)]
        for client in clients:
            client.sendall(head(SPEECH, 16 * MIB) + b"x")
        assert clients[0].recv(1) == b""  # let go for the fifth
        assert answered(http.client.HTTPConnection("127.0.0.1", port, timeout=AMPLE)) == WORKS
    assert b" 431 " in said(port, head("/run", 1, *["a: " + "x" * 1000] * 20) + WORKS)
    form = b"\r\n--a" * 1000
    kind = "Content-Type: multipart/form-data; boundary=a"
    assert b"at most 64 fields" in said(
        port, head(SPEECH, len(form), kind, "Connection: close") + form
    )
    assert b"at most 1048576 bytes" in said(port, head(CHAT, 2 * MIB) + b" " * 2 * MIB)
    number = b'{"prompt": "x", "max_tokens": %s}' % (b"1" * 3000)
    assert b" 400 " in said(port, head(CHAT, len(number), "Connection: close") + number)


@pytest.mark.slow
def test_odd_requests_get_a_status(serve: Serve, port: int) -> None:
    """Unknown paths, bodies whose end is ambiguous or missing, damaged pictures and sound."""
    serve()
    assert b" 404 " in said(port, b"GET /nosuch HTTP/1.1\r\nConnection: close\r\n\r\n")
    for asked in (b"GET /v1/nosuch HTTP/1.1\r\n\r\n", head("/v1/nosuch", 1) + WORKS):
        top, _, body = said(port, asked).partition(b"\r\n\r\n")
        assert b" 404 " in top and "found /v1/nosuch" in json.loads(body)["error"]["message"]
    zero = b'{"prompt": "x", "logprobs": 0}'
    found = said(port, head(CHAT, len(zero), "Connection: close") + zero)
    assert b" 400 " in found and b"'logprobs' to be false" in found
    for line in ("Transfer-Encoding: chunked", "Content-Length: 5"):
        assert said(port, head("/run", 1, line) + WORKS).startswith(b"HTTP/1.1 400 ")
    header = b"RIFF" + (16).to_bytes(4, "little") + b"WAVELIST" + b"\xff" * 4
    for path, body in (("/detect", b"no picture"), ("/detect", DDS), ("/transcribe", header)):
        found = said(port, head(path, len(body), "Connection: close") + body)
        assert found.startswith(b"HTTP/1.1 400 ") and b"object at" not in found
    with silent(port) as client:
        client.sendall(head("/run", 2) + WORKS)
    with silent(port) as client:
        client.sendall(head("/run", 1))
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_the_vector_of_a_sound(serve: Serve, port: int) -> None:
    serve()
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(b"\0\0\0\x40\0\0")
    body = file.getvalue()
    found = said(port, head("/embed", len(body), "Connection: close") + body)
    assert json.loads(found.partition(b"\r\n\r\n")[2]) == {"vector": [3, 0.5]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--http", "{port}"], ["--http", "70000"], ["--socket", "no/s"]]
)
def test_a_place_that_is_taken_is_one_line(tmp_path: Path, port: int, options: list[str]) -> None:
    (tmp_path / "edgekit_runtime.py").write_text(RUNTIME)
    words = [sys.executable, SERVE, *(word.format(port=port) for word in options)]
    with socket.create_server(("127.0.0.1", port)):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, timeout=AMPLE, check=False
        )
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1
    assert f"expected to listen as {options[0]} says, found: ".encode() in done.stderr


@pytest.mark.slow
def test_a_stream_that_is_not_read_does_not_hold_the_model(serve: Serve, port: int) -> None:
    serve()
    asked = b'{"prompt": "x", "stream": true}'
    with silent(port) as client:
        client.sendall(head(CHAT, len(asked)) + asked)
        assert client.recv(9) == b"HTTP/1.1 "
        assert answered(http.client.HTTPConnection("127.0.0.1", port, timeout=AMPLE)) == WORKS


@pytest.mark.slow
def test_a_playlist_reads_no_files(
    serve: Serve, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ffmpeg may read only what it is given."""
    (tmp_path / "ffmpeg").write_text('#!/bin/sh\necho "$@" >&2\nexit 1\n')
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    serve()
    form = b'--a\r\nContent-Disposition: form-data; name="file"\r\n\r\n#EXTM3U\r\n--a--\r\n'
    kind = "Content-Type: multipart/form-data; boundary=a"
    found = said(port, head(SPEECH, len(form), kind, "Connection: close") + form)
    assert b"-protocol_whitelist pipe -i pipe:0" in found

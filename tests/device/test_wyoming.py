"""The template `wyoming`: an inference that hangs ends it, although its loop goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.host.compiler.toolchain.zig import kernels_folder
from tests.support.patience import AMPLE

_RUNTIME = """
import threading
from types import SimpleNamespace

from edgekit.device.runtime.application.sd_notify import Heartbeats, alive

class DeviceError(Exception):
    pass

class Model:
    task = SimpleNamespace(kind="keyword", labels=("word",), rate=16000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def reset(self):
        pass

def open():
    return Model()

def listen(model):
    return SimpleNamespace(feed=lambda samples: threading.Event().wait())
"""
_CHUNK = (
    b'{"type": "audio-chunk", "data": {"rate": 16000, "width": 2, "channels": 1}, '
    b'"payload_length": 2}\n\0\0'
)


@pytest.mark.slow
def test_an_inference_that_hangs_ends_the_server(tmp_path: Path) -> None:
    (tmp_path / "edgekit_runtime.py").write_text(_RUNTIME)
    templates = kernels_folder().parent / "templates"
    paths = f"{tmp_path}:{templates / 'microphone'}"
    server = subprocess.Popen(
        [sys.executable, templates / "wyoming/main.py", "--port", "0"],
        env={**os.environ, "PYTHONPATH": paths, "WATCHDOG_USEC": "1000000"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().split()[-1])
            with socket.create_connection(("127.0.0.1", port), AMPLE) as client:
                client.sendall(_CHUNK)
                assert server.wait(AMPLE) == -signal.SIGABRT
        finally:
            server.kill()

"""A client of the template `wyoming`, by the protocol's description."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.toolchain.zig import kernels_folder
from tests.support.patience import AMPLE

Event = tuple[str, dict[str, Any]]


@contextmanager
def wyoming_server(board: Path) -> Iterator[int]:
    """Runs the template with what is deployed; gives its port."""
    templates = kernels_folder().parent / "templates"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{board / 'current/runtime.pyz'}:{templates / 'microphone'}",
        "EDGEKIT_ROOT": str(board),
    }
    words = [sys.executable, str(templates / "wyoming/main.py"), "--port", "0"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline().rsplit(None, 1)[-1])
        finally:
            server.terminate()


def heard_by(port: int, first: Sequence[Event], sound: Any, rate: int = 16000) -> list[Event]:
    """The answers to these events, and to the sound that follows in chunks of 80 ms."""
    codes = np.round(np.asarray(sound) * 32767).astype("<i2")
    about = {"rate": rate, "width": 2, "channels": 1}
    chunks = [codes[i : i + 1280].tobytes() for i in range(0, len(codes), 1280)]
    events = [(kind, data, b"") for kind, data in first]
    if chunks:
        events.append(("audio-start", about, b""))
        events += [("audio-chunk", about, chunk) for chunk in chunks]
        events.append(("audio-stop", {}, b""))
    with socket.create_connection(("127.0.0.1", port), AMPLE) as connection:
        heard: list[Event] = []
        with suppress(ConnectionError):  # a server that refuses the sound does not read all of it
            with connection.makefile("wb") as out:
                for kind, data, payload in events:
                    body = json.dumps(data).encode()
                    head = {"type": kind, "data_length": len(body), "payload_length": len(payload)}
                    out.write(json.dumps(head).encode() + b"\n" + body + payload)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError), connection.makefile("rb") as answers:
            heard += (_read(line, answers) for line in answers)
        return heard


def _read(line: bytes, answers: Any) -> Event:
    head = json.loads(line)
    return head["type"], json.loads(answers.read(head["data_length"]))

"""No input, output, path or environment variable is in the bytes that leave a board."""

from __future__ import annotations

import base64
import json
import ssl
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey
from edgekit.host.deploy.release import enroll
from edgekit.host.deploy.transport import Completed, LocalTransport, OnLine
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore, pull, query
from edgekit.host.fleet.profiles import enroll as enroll_board
from tests.support.profile_servers import serving
from tests.support.proxy import running_proxy

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

SECRET = "Xyzzy9Plugh"
NUMBER = float(np.frombuffer(SECRET[:4].encode(), np.float32)[0])


class Overheard(LocalTransport):
    """Records all answers of a board."""

    def __init__(self, root: Path, python: Path) -> None:
        super().__init__(root, python=str(python))
        self.heard: list[bytes] = []

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        done = super().run(command, deadline=deadline, on_line=on_line)
        self.heard += [done.stdout, done.stderr]
        return done


class OpenServer(ProfileServer):
    """Records all received plaintext."""

    def __init__(self, store: ProfileStore) -> None:
        super().__init__(store, ("127.0.0.1", 0))
        self.heard = heard = bytearray()

        class Tapped(ssl.SSLObject):
            def read(self, size: int = 1024, buffer: Any = None) -> Any:
                found = super().read(size, buffer)
                heard.extend(found if buffer is None else memoryview(buffer).cast("B")[:found])
                return found

        self._context.sslobject_class = Tapped


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OpenServer]:
    with serving(OpenServer(ProfileStore(tmp_path / "store"))) as found:
        assert isinstance(found, OpenServer)
        yield found


@pytest.fixture
def board(
    tiny: Callable[..., Bundle],
    trusted: SigningKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Device:
    """A board with a secret in its environment and in its paths."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / SECRET / "home"))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nTOKEN={SECRET} {SECRET}=1 exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    found = Device(Overheard(tmp_path / SECRET / "board", python))
    enroll(found, trusted.public)
    found.deploy(tiny())
    return found


def infer(board: Device) -> list[bytes]:
    """Runs the model on the secret; returns byte strings that must not leak."""
    with board.open() as session:
        for _ in range(30):
            outputs, _ = session.run({"x": np.full(4, NUMBER, np.float32)})
    result = outputs["y"]
    texts = [repr(NUMBER), f"{NUMBER:.6g}", repr(float(result[0])), f"{result[0]:.6g}"]
    return [np.float32(NUMBER).tobytes(), result[:1].tobytes(), *(t.encode() for t in texts)]


def assert_none_of(leaks: Sequence[bytes], shown: bytes) -> None:
    assert shown
    for leak in leaks:
        for form in (leak, leak.hex().encode(), base64.b64encode(leak).rstrip(b"=")[:-1]):
            assert form.lower() not in shown.lower(), leak


def test_a_pull_takes_no_secret_along(board: Device, tmp_path: Path) -> None:
    leaks = [*infer(board), SECRET.encode(), str(tmp_path).encode()]
    assert isinstance(board.transport, Overheard)
    board.transport.heard.clear()
    store = ProfileStore(tmp_path / "store")
    assert pull(board, store).stored.new == 1
    shown = b"\n".join(board.transport.heard)
    answer, _ = (json.loads(line) for line in shown.splitlines() if line.startswith(b"{"))
    unpacked = zlib.decompress(base64.b64decode(answer["data"]))
    assert b'"model":"tiny"' in unpacked
    assert_none_of(leaks, shown)
    assert_none_of(leaks, unpacked)


@pytest.mark.slow
def test_a_push_takes_no_secret_along(board: Device, server: OpenServer, tmp_path: Path) -> None:
    leaks = [*infer(board), SECRET.encode(), str(tmp_path).encode()]
    with running_proxy("127.0.0.1", server.port) as proxy:
        enroll_board(board, server.store, "127.0.0.1", proxy.port)
        board.call("push-profiles")
    head, _, body = bytes(server.heard).partition(b"\r\n\r\n")
    assert query(server.store, "SELECT count(*) FROM batches", 1).rows == ((1,),)
    assert head.startswith(b"POST /v1/boards/local/profiles HTTP/1.1")
    assert_none_of(leaks, bytes(server.heard))
    assert_none_of(leaks, zlib.decompress(body))

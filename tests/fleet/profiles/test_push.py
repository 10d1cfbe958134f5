"""Boards push profiles over HTTPS: only to the pinned host, rate-limited, without loss."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import sys
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.push import Bandwidth, LaterError, PushTarget, push, read_home
from edgekit.device.runtime.agent.spool import Spool
from edgekit.device.runtime.errors import InputError
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.release import probe
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.errors import InputError as HostInputError
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore, enroll, query, revoke, upload
from edgekit.host.fleet.profiles.admission import ConnectionLimits
from edgekit.host.fleet.profiles.catalog import ParquetPart
from edgekit.host.fleet.profiles.parquet import write_part
from tests.long.hostile_clients import run as attack
from tests.long.kill_profile_server import run as kill_server
from tests.support.patience import AMPLE
from tests.support.profile_batches import batch, headed, stream
from tests.support.profile_servers import enrolled, fill, running_server
from tests.support.proxy import running_proxy
from tests.support.tiny_bundles import compile_shared

pytestmark = pytest.mark.slow

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
FAST = 1 << 30


def stored(store: ProfileStore) -> list[tuple[object, ...]]:
    sql = "SELECT board, count(*), count(DISTINCT uuid) FROM batches GROUP BY 1 ORDER BY 1"
    return list(query(store, sql, 99).rows)


def test_a_board_sends_what_waits_and_then_forgets_it(
    server: ProfileServer, tmp_path: Path
) -> None:
    spool, home = enrolled(server, tmp_path)
    assert push(spool, home, Bandwidth(FAST)) > 1000
    assert stored(server.store) == [("x", 3, 3)]
    assert spool.fetch(1).data == b""
    assert push(spool, home, Bandwidth(FAST)) == 0


@pytest.mark.parametrize("clock", [0.0, 2_200_000_000.0])
def test_a_clock_that_is_wrong_is_no_matter(
    server: ProfileServer, tmp_path: Path, clock: float
) -> None:
    spool, home = enrolled(server, tmp_path)
    spool.add(replace(batch(7), clock=clock))
    push(spool, home, Bandwidth(FAST))
    assert stored(server.store) == [("x", 4, 4)]


@pytest.mark.parametrize("start", [0, 2_100_000_000], ids=["1970", "ten years ahead"])
def test_a_board_sends_by_its_own_program_wherever_its_clock_stands(
    server: ProfileServer, tmp_path: Path, start: int
) -> None:
    enrolled(server, tmp_path)
    library, python = tmp_path / "clock.so", tmp_path / "python"
    source = Path(__file__).parents[2] / "support" / "clock_moved.c"
    compile_shared(source, library, f"-DSTART={start}")
    python.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    board = LocalTransport(tmp_path / "x", "x", str(python))
    assert start <= probe(Device(board)).clock < start + 365 * 86400 * 5
    assert Device(board).call("push-profiles")["bytes"] > 1000
    assert stored(server.store) == [("x", 3, 3)]


def test_a_token_that_is_wrong_revoked_or_of_another_board_is_refused(
    server: ProfileServer, tmp_path: Path
) -> None:
    spool, home = enrolled(server, tmp_path)
    _, other = enrolled(server, tmp_path, "y")
    for wrong, why in (
        (replace(home, token="0" * 64), "401 an unknown or revoked token"),
        (replace(home, token=other.token), "403 the token of another board"),
    ):
        with pytest.raises(InputError, match=f"{why}; on the host: edgekit fleet enroll x"):
            push(spool, wrong, Bandwidth(FAST))
    revoke(server.store, "x")
    with pytest.raises(InputError, match="401"):
        push(spool, home, Bandwidth(FAST))
    with pytest.raises(HostInputError, match="found 'x'; enrolled: y"):
        revoke(server.store, "x")
    assert stored(server.store) == []
    again = enroll(Device(LocalTransport(tmp_path / "x", "x")), server.store, home.host, home.port)
    push(spool, again, Bandwidth(FAST))
    assert stored(server.store) == [("x", 3, 3)]


def test_a_board_says_in_one_line_that_it_may_not_send(
    server: ProfileServer, tmp_path: Path
) -> None:
    spool, _ = enrolled(server, tmp_path)
    waiting = spool.fetch(1 << 20).data
    revoke(server.store, "x")
    with pytest.raises(HostInputError) as error:
        Device(LocalTransport(tmp_path / "x", "x")).call("push-profiles")
    assert "401 an unknown or revoked token" in str(error.value)
    assert "on the host: edgekit fleet enroll x" in str(error.value)
    assert "\n" not in str(error.value)
    assert spool.fetch(1 << 20).data == waiting


def test_nothing_is_sent_to_a_host_with_another_certificate(
    server: ProfileServer, tmp_path: Path
) -> None:
    spool, home = enrolled(server, tmp_path)
    with (
        running_proxy(home.host, home.port) as proxy,
        pytest.raises(InputError, match=r"expected the certificate 0000.* nothing was sent"),
    ):
        push(spool, replace(home, port=proxy.port, certificate="0" * 64), Bandwidth(FAST))
    assert proxy.up < 1500  # just a handshake
    assert len(spool.fetch(1 << 20).data) > 1000


def test_a_full_disk_of_the_server_keeps_all_on_the_board(tmp_path: Path) -> None:
    full = True

    def write(folder: Path, profile: str, date: str, tables: Iterable[Any]) -> ParquetPart:
        if full:
            raise OSError(28, "No space left on device")
        return write_part(folder, profile, date, tables)

    store = ProfileStore(tmp_path / "store", write=write)
    with running_server(store) as server:
        spool, home = enrolled(server, tmp_path)
        with pytest.raises(LaterError, match="507 cannot store now") as error:
            push(spool, home, Bandwidth(FAST))
        assert error.value.seconds > 60
        full = False
        push(spool, home, Bandwidth(FAST))
    assert stored(store) == [("x", 3, 3)]


def test_a_server_that_is_not_there_is_tried_again_later(
    server: ProfileServer, tmp_path: Path
) -> None:
    spool, home = enrolled(server, tmp_path)
    with pytest.raises(LaterError, match="Connection refused"):
        push(spool, replace(home, port=1), Bandwidth(FAST))


@pytest.mark.exhaustive
def test_a_server_killed_at_a_random_moment_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert kill_server(tmp_path, kills=1, seed=3) == 0


def ask(home: PushTarget, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, str]]:
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(home.host, home.port, context=context, timeout=AMPLE)
    head = {"Authorization": f"Bearer {home.token}"}
    head.update({name: value.encode("latin-1") for name, value in headers.items()})
    connection.request("POST", path, body, head)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, {key.lower(): value for key, value in answer.getheaders()}


def test_requests_of_other_kinds_are_answered_by_name(
    server: ProfileServer, tmp_path: Path
) -> None:
    _, home = enrolled(server, tmp_path)
    path, good = "/v1/boards/x/profiles", zlib.compress(stream(1))
    assert ask(home, "/", good)[0] == 404
    assert ask(home, "/v1/boards/../profiles", good)[0] == 404
    assert ask(home, path, b"nonsense")[0] == 400
    assert ask(home, path, good[:-3])[0] == 400
    assert ask(home, path, zlib.compress(stream(1)[:-1]))[0] == 400
    assert ask(home, path, zlib.compress(bytes(9 << 20)))[0] == 400
    assert ask(home, path, b"", **{"Content-Length": str(1 << 30)})[0] == 413
    for odd in ("-1", "²", "9" * 5000, "9, 9", ""):
        assert ask(home, path, b"", **{"Content-Length": odd})[0] == 411
    assert ask(home, path, good, **{"Transfer-Encoding": "chunked"})[0] == 411
    assert ask(home, path, good, X="9" * 9000)[0] == 431
    assert ask(home, path, good, **{"X y": "9"})[0] == 400
    assert ask(home, path, good, Authorization="Basic eDp5")[0] == 401
    assert ask(home, path, good)[0] == 200


def test_a_board_has_a_quota_of_bytes_and_one_of_batches(
    server: ProfileServer, tmp_path: Path
) -> None:
    _, home = enrolled(server, tmp_path)
    path = "/v1/boards/x/profiles"
    assert ask(home, path, zlib.compress(stream(1)))[0] == 200
    assert ask(replace(home, token="f" * 64), path, b"")[0] == 401
    assert "127.0.0.1" in server._known
    assert ask(home, path, zlib.compress(1025 * headed(b"0")))[0] == 400
    assert not (server.store.folder / "refused").exists()
    assert "127.0.0.1" not in server._known
    bomb, found, tries = zlib.compress(bytes(9 << 20)), 400, 0
    while found == 400:
        (found, headers), tries = ask(home, path, bomb), tries + 1
    assert (found, int(headers["retry-after"]) > 10, tries < 20) == (429, True, True)
    _, home = enrolled(server, tmp_path, "y")
    assert ask(home, "/v1/boards/y/profiles", zlib.compress(stream(1)))[0] == 200


def test_slow_and_silent_clients_lose_their_connections(tmp_path: Path) -> None:
    """And boards are served meanwhile, though all places are taken."""
    limits = ConnectionLimits(queueing=4, waiting=4, head_seconds=0.5, silent_seconds=0.5)
    with running_server(ProfileStore(tmp_path / "store"), limits) as server:
        spool, home = enrolled(server, tmp_path)
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        tls = ssl._create_unverified_context()
        slow = [tls.wrap_socket(socket.create_connection((home.host, home.port))) for _ in "12"]
        slow[0].sendall(b"POST /")
        head = f"POST /v1/boards/x/profiles HTTP/1.1\r\nAuthorization: Bearer {home.token}\r\n"
        slow[1].sendall(f"{head}Content-Length: 9\r\n\r\n1".encode())
        while spool.fetch(1).data:
            with contextlib.suppress(LaterError):
                push(spool, home, Bandwidth(FAST))
        for client in (*idle, *slow):
            client.settimeout(AMPLE)
            with contextlib.suppress(OSError):
                while client.recv(1000):
                    pass
            client.close()
    assert stored(server.store) == [("x", 3, 3)]


def test_hostile_clients_keep_no_board_out(tmp_path: Path) -> None:
    assert attack(tmp_path, 40, 5, 1.0, boards=2, limit=float("inf")) == 0


def test_batches_of_a_newer_edgekit_are_taken_and_kept_aside(
    server: ProfileServer, tmp_path: Path
) -> None:
    _, home = enrolled(server, tmp_path)
    newer = stream(8).partition(b"\n")[2].replace(b"batch/1", b"batch/7")
    assert ask(home, "/v1/boards/x/profiles", zlib.compress(headed(newer) + stream(9)))[0] == 200
    assert stored(server.store) == [("x", 1, 1)]
    (kept,) = (server.store.folder / "refused" / "x").glob("*.batch")
    assert kept.read_bytes() == headed(newer)


def test_a_board_that_sends_too_often_learns_when_to_retry(
    server: ProfileServer, tmp_path: Path
) -> None:
    spool, home = enrolled(server, tmp_path)
    while (wait := server.rates.wait("x")) == 0:
        pass
    with pytest.raises(LaterError, match="429 too many requests") as error:
        push(spool, home, Bandwidth(FAST))
    assert error.value.seconds >= wait - 5
    other, home = enrolled(server, tmp_path, "y")
    push(other, home, Bandwidth(FAST))


def test_a_damaged_note_of_the_home_is_named(server: ProfileServer, tmp_path: Path) -> None:
    spool, home = enrolled(server, tmp_path)
    path = spool.folder / "home.json"
    for data, why in (
        (b"{", "expected JSON"),
        (b"{}", "missing"),
        (json.dumps({**vars(home), "token": "x"}).encode(), "token: expected 64"),
        (json.dumps({**vars(home), "host": "a/b"}).encode(), "host: expected"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputError, match=why):
            read_home(path)
    path.unlink()
    with pytest.raises(InputError, match="edgekit fleet enroll BOARD"):
        read_home(path)


def test_a_folder_of_spool_files_is_stored_once_and_damaged_ones_are_named(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path / "store")
    folder = fill(Spool(tmp_path / "card" / "spool")).folder
    bad = sorted(folder.glob("*.batch"))[1]
    bad.write_bytes(bad.read_bytes()[:-1])
    for new in (2, 0):
        found, damaged = upload(store, "x", tmp_path / "card")
        assert found.new == new
        assert [bad.name in why for why in damaged] == [True]
    assert len(list(folder.glob("*.batch"))) == 3
    with pytest.raises(HostInputError, match="found none"):
        upload(store, "x", tmp_path / "store")


def test_a_server_bounds_its_store(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path / "bounded")
    for new in (1, 0):
        with ProfileServer(store, ("127.0.0.1", 0), most_bytes=1, compact_every=1) as server:
            assert server.store_stream("x", stream(1)).new == new
        assert query(store, "FROM batches", 10).rows == ()

"""`edgekit profile`: from a board's spool to SQL results, as a user types it."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.common.paths import data_folder
from edgekit.host.deploy.bundle import Bundle, sign_bundle
from tests.support.profile_batches import batch

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")


def test_a_profile_is_pulled_listed_asked_exported_and_forgotten(edgekit: Any, home: Path) -> None:
    spool = Spool(data_folder() / "boards" / "local" / "spool")
    for number in (3, 5):
        spool.add(batch(number))
    pulled = edgekit("profile", "pull", "--board", "local")
    assert (pulled.code, pulled.out) == (0, "pulled   2 batches with 4 rows from local\n")
    again = edgekit("profile", "pull", "--board", "local", "--json").document
    assert again["stored"]["new"] == 0
    assert "local  a57" in edgekit("profile", "list").out
    sql = "SELECT name, max(max_ns) FROM operators GROUP BY 1 ORDER BY 1"
    assert edgekit("profile", "list", sql, "--json").document["rows"] == [["op0", 5], ["op1", 5]]
    assert edgekit("profile", "list", "-o", "out.csv", "--json").document["rows"] == 4
    assert (home / "out.csv").read_text().startswith('"board",')
    assert (
        edgekit("profile", "list", "--forget", "--days", "1").out == "removed  0 rows in 0 files\n"
    )
    assert (
        edgekit("profile", "list", "--forget", "--max-size", "1KiB").out
        == "removed  4 rows in 1 file\n"
    )


def test_sampling_is_switched_off_with_one_line(edgekit: Any) -> None:
    done = edgekit("profile", "pull", "--sampling", "off", "--board", "local", "--json")
    assert (done.code, done.document["on"]) == (0, False)
    assert "sampling is off" in edgekit("profile", "pull", "--board", "local").out
    on = edgekit("profile", "pull", "--sampling", "on", "--board", "local", "--json")
    assert on.document["on"]


def test_bad_questions_are_one_line(edgekit: Any) -> None:
    for arguments, expected in (
        (("profile", "list", "SELEC"), "expected one SELECT over the views"),
        (("profile", "list", "-o", "out.xlsx"), "expected a name that ends in .parquet"),
        (("profile", "list", "--forget"), "expected --days or --max-size"),
        (
            ("profile", "list", "--forget", "--max-size", "much"),
            "--max-size: expected a number of at least 1",
        ),
        (("profile", "list", "--days", "5"), "expected --forget with --days, found none"),
        (("profile", "list", "--limit", "5"), "expected SQL with --limit, found none"),
        (
            ("profile", "list", "FROM batches", "-o", "x.csv", "--limit", "5"),
            "expected --limit or -o, found",
        ),
        (
            ("profile", "pull", "--sampling", "maybe"),
            "expected one of 'on', 'off', 'explore', found maybe",
        ),
        (
            ("profile", "pull", "--sampling", "off", "--spool", "x"),
            "expected --sampling or --spool, found",
        ),
        (("fleet", "enroll", "local"), "--server HOST with the address"),
        (("fleet", "enroll", "x", "--server", "0.0.0.0"), "by which a board reaches itself"),
        (("fleet", "enroll", "x", "--revoke", "--server", "y"), "expected --server or --revoke"),
    ):
        done = edgekit(*arguments)
        assert done.code == 2
        assert expected in done.complaint


def test_an_empty_store_says_what_to_do(edgekit: Any) -> None:
    assert "edgekit profile pull" in edgekit("profile", "list").out


def test_a_board_is_enrolled_and_revoked_and_its_token_is_not_shown(edgekit: Any) -> None:
    done = edgekit("fleet", "enroll", "local", "--server", "localhost:1234", "--json")
    note = data_folder() / "boards" / "local" / "spool" / "home.json"
    token = json.loads(note.read_bytes())["token"]
    assert (done.document["host"], done.document["port"]) == ("localhost", 1234)
    assert token not in done.out + done.err
    assert (data_folder() / "profiles" / "server.pem").stat().st_mode & 0o77 == 0
    assert edgekit("fleet", "enroll", "local", "--revoke").out == "revoked  the token of local\n"
    again = edgekit("fleet", "enroll", "local", "--revoke")
    assert (again.code, again.complaint.count("expected an enrolled board")) == (2, 1)
    bad = edgekit("fleet", "enroll", "local", "--server", "a b")
    assert (bad.code, bad.complaint.count("expected HOST or HOST:PORT")) == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [(), ("--name", "other")])
def test_the_command_that_enroll_prints_runs(
    edgekit: Any, tmp_path: Path, tiny: Callable[..., Bundle], name: tuple[str, ...]
) -> None:
    enroll = ("fleet", "enroll", "local", "--server", "localhost:1")
    assert "once a model is deployed" in edgekit(*enroll).out
    sign_bundle(tiny()).write(tmp_path / "tiny.ekb")
    assert edgekit("deploy", tmp_path / "tiny.ekb", *name).code == 0
    line = edgekit(*enroll).out.splitlines()[-1].strip()
    command = shlex.split(line.removesuffix(" --every 600"))
    assert command[0] == sys.executable  # another Python may lack what the runtime's has
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert (done.returncode, json.loads(done.stdout)["bytes"]) == (0, 0)
    assert edgekit(*enroll, "--json").document["sender"] == line


def test_spool_files_of_a_card_are_uploaded(edgekit: Any, home: Path) -> None:
    Spool(home / "card").add(batch(3))
    done = edgekit("profile", "pull", "--spool", "card", "--board", "far")
    assert (done.code, done.out) == (0, "stored   1 batch with 2 rows from card\n")
    (home / "card" / f"000000000009-{9:032x}.batch").write_bytes(b"x")
    done = edgekit("profile", "pull", "--spool", "card", "--board", "far", "--json")
    assert (done.code, done.document["known"]) == (6, 1)
    assert "found 1 damaged files" in done.err


def test_a_folder_without_spool_files_is_named(edgekit: Any, home: Path) -> None:
    done = edgekit("profile", "pull", "--spool", home / "nowhere", "--board", "far")
    assert (done.code, done.complaint.count("expected files of a board's spool, *.batch")) == (2, 1)


def test_a_port_that_is_taken_is_named(edgekit: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = edgekit("fleet", "serve", "--address", "127.0.0.1", "--port", port)
    assert (done.code, done.complaint.count("choose another: --port")) == (2, 1)


@pytest.mark.parametrize("address", ["192.0.2.1", "x" * 70])
def test_an_address_of_another_machine_is_named(edgekit: Any, address: str) -> None:
    done = edgekit("fleet", "serve", "--address", address)
    assert (done.code, done.complaint.count("choose another: --address")) == (2, 1)

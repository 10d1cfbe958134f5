"""edgekit fleet: listing the inventory, and one command run on many boards."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.cli.app import explain
from edgekit.host.cli.fleet_work import run_on
from edgekit.host.compiler.inputs import InputOptions
from edgekit.host.deploy.api import connect
from edgekit.host.deploy.bundle import sign_bundle

pytestmark = pytest.mark.slow

BOARDS = """
[boards.pi-1]
profile = "local"
transport = "local"
labels = { site = "lab" }
[boards.pi-2]
profile = "local"
transport = "local"
labels = { site = "field" }
[boards.asleep]
profile = "a57"
host = "127.0.0.1"
port = 1
host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJhgrVpbCFZvm1cBnLFEqLYk6DLK2j7yI0sDHKZZx1lZ"
"""


@pytest.fixture(autouse=True)
def inventory(home: Path) -> Path:
    (home / "edgekit.toml").write_text(BOARDS)
    return home / "edgekit.toml"


@pytest.fixture
def both(tiny: Any) -> None:
    """Deploys the tiny model on the two boards that are not asleep."""
    for name in ("pi-1", "pi-2"):
        connect(name).deploy(sign_bundle(tiny()))


def test_boards_are_listed_with_what_they_are_selected_by(edgekit: Any) -> None:
    done = edgekit("boards")
    assert done.code == 0
    lines = [line.split()[:5] for line in done.out.splitlines()]
    assert ["pi-1", "known", "local", "local", "site=lab"] in lines
    (board,) = edgekit("boards", "--select", "site=field", "--json").document["boards"]
    assert (board["name"], board["labels"], board["type"]) == ("pi-2", {"site": "field"}, "local")


def test_a_selection_gives_names_one_on_each_line(edgekit: Any) -> None:
    assert edgekit("boards", "--names", "--select", "name=pi-*").out == "pi-1\npi-2\n"
    assert (
        edgekit("boards", "--names", "--select", "site=lab", "--select", "name=asleep").out
        == "asleep\npi-1\n"
    )
    document = edgekit("boards", "--select", "!site", "--json").document
    assert [board["name"] for board in document["boards"]] == ["asleep"]
    assert "profiles" not in document


def test_a_selection_without_boards_is_named(edgekit: Any) -> None:
    done = edgekit("doctor", "--select", "site=labb")
    assert (done.code, done.out) == (2, "")
    assert "known values: lab (1), field (1)" in done.complaint


def test_doctor_of_a_fleet_says_which_boards_fail_and_why(edgekit: Any) -> None:
    done = edgekit("doctor", "--select", "name=*", "--json")
    assert done.code == 8
    found = {board["board"]: board for board in done.document["boards"]}
    assert done.document["counts"] == {"ok": 2, "failed": 1, "canceled": 0}
    assert found["pi-1"]["state"] == "ok" and len(found["pi-1"]["findings"]) > 5
    assert "127.0.0.1:1" in found["asleep"]["error"]["message"]
    assert "expected all of 3 boards to succeed, found 1 failed" in done.err
    assert edgekit("doctor", "--select", "site").code == 0


def test_a_table_ends_with_the_boards_that_failed(edgekit: Any) -> None:
    done = edgekit("doctor", "--select", "name=*")
    *_, last = done.out.splitlines()
    assert last.startswith("failed   asleep: board asleep: ")
    assert [line.split()[0] for line in done.out.splitlines()[1:4]] == ["pi-1", "pi-2", "asleep"]


@pytest.mark.usefixtures("both")
def test_the_same_input_on_each_board_gives_the_same(edgekit: Any, home: Path) -> None:
    np.save(home / "x.npy", np.array([1, 2, 3, 4], np.float32))
    arguments = ("--input", "x.npy", "--output", "out", "--select", "site", "--json")
    document = edgekit("run", *arguments).document
    one, two = document["boards"]
    assert one["sha256"] == two["sha256"] and one["latency_ms"] > 0
    assert document["differs"] == []
    for name in ("pi-1", "pi-2"):
        np.testing.assert_array_equal(np.load(home / "out" / f"{name}.npz")["y"], [3, 5, 7, 9])


def test_a_run_of_nothing_deployed_fails_on_each_board(edgekit: Any, home: Path) -> None:
    np.save(home / "x.npy", np.zeros(4, np.float32))
    done = edgekit("run", "--input", "x.npy", "--select", "site")
    assert done.code == 8 and "found 2 failed" in done.err
    done = edgekit("run", "--input", "x.npy", "--select", "site", "--timestamps")
    assert done.code == 2 and "expected --timestamps or --select, found both" in done.err
    done = edgekit("run", "--select", "name=*", "--input", "missing.npy")
    assert (done.code, done.complaint.count("found none at missing.npy")) == (2, 1)


@pytest.mark.usefixtures("both")
def test_boards_are_timed(edgekit: Any) -> None:
    done = edgekit("bench", "model", "--select", "site", "--runs", "5", "--json")
    assert [board["runs"] for board in done.document["boards"]] == [5, 5]
    assert all(board["latency_ms"] > 0 for board in done.document["boards"])
    done = edgekit("bench", "model", "--select", "site", "--runs", "5", "--parallel", "1")
    assert done.out.splitlines()[-1].startswith("medians  ")


@pytest.mark.usefixtures("both")
def test_profiles_of_a_fleet_come_home(edgekit: Any) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    done = edgekit("profile", "pull", "--select", "name=*", "--json")
    assert (done.code, done.document["counts"]["failed"]) == (8, 1)
    done = edgekit("profile", "pull", "--select", "site")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "stored   0 batches with 0 rows"


def test_an_error_on_the_host_ends_the_run_and_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], both: None
) -> None:
    def full(file: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device", str(file))

    np.save(home / "x.npy", np.zeros(4, np.float32))
    options, name, threads, signature, parallel = InputOptions(), None, None, "", 1
    with pytest.raises(OSError) as raised:
        run_on(
            *(["site"], Path("x.npy"), "out", options, name, threads, signature, parallel, True),
            write=full,
        )
    line, code = explain(raised.value)
    assert line.startswith("out/pi-1.npz: No space left on device; free some space")
    assert code == 2
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert counts == {"ok": 0, "failed": 0, "canceled": 2}


def test_failures_are_told_at_once_and_progress_in_lines(edgekit: Any) -> None:
    before = set(threading.enumerate())  # other tests may have servers
    done = edgekit("doctor", "--select", "name=asleep")
    lines = done.err.splitlines()
    assert lines[0].startswith("failed board asleep: ")
    assert lines[1].startswith("checking: 1 of 1, 1 failed, ")
    assert set(threading.enumerate()) <= before  # all worker threads have ended

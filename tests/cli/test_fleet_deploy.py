"""edgekit fleet deploy, and status and rollback of a rollout, on simulated boards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import sign_bundle
from edgekit.host.deploy.bundle.sign import host_key
from edgekit.host.deploy.inventory import add_boards
from tests.support.board_farm import Farm, running_farm
from tests.support.patience import AMPLE

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "src"
NEWEST = ("--rollout", "newest")
QUICK = ("--pause", "0s", "--batch", "2", "--max-failures", "1", "--select", "site=lab")


@pytest.fixture
def farm(home: Path, tmp_path: Path) -> Iterator[Farm]:
    with running_farm(tmp_path / "farm", 5) as found:
        for board in found.boards:
            store = Store(board.root)
            store.create()
            enroll(store, host_key().public.line)
        add_boards(found.entries(site="lab"), home / "edgekit.toml")
        yield found


@pytest.fixture
def ekb(home: Path, tiny: Any) -> Any:
    def write(*defines: str) -> Path:
        bundle = sign_bundle(tiny(*defines))
        file = home / f"{bundle.manifest.id}.ekb"
        bundle.write(file)
        return file

    return write


def runs(farm: Farm) -> list[str | None]:
    return [Store(board.root).links().current for board in farm.boards]


def test_deploy_status_and_rollback(edgekit: Any, farm: Farm, ekb: Any) -> None:
    old, new = ekb(), ekb('TINY_NAME="other"')
    done = edgekit("fleet", "deploy", old, *QUICK)
    assert done.code == 0, done.err
    assert "boards   5 done" in done.out
    assert runs(farm) == [old.stem] * 5
    found = edgekit("fleet", "deploy", new, *QUICK, "--json").document
    assert found["schema"] == "edgekit.fleet.deploy/1"
    assert found["state"] == "finished"
    row = found["boards"][4]
    assert (row["board"], row["state"], row["previous"]) == ("sim0004", "done", old.stem)
    assert edgekit("status", *NEWEST, "--json").document["boards"] == found["boards"]
    back = edgekit("rollback", *NEWEST)
    assert back.code == 0, back.err
    assert "rolled back" in back.out
    assert runs(farm) == [old.stem] * 5
    document = edgekit("status", "--rollout", found["rollout"], "--json").document
    assert (document["schema"], document["rollout"]) == ("edgekit.fleet.status/1", found["rollout"])
    unknown = edgekit("status", "--rollout", "nosuch")
    assert unknown.code == 2 and "expected newest or the id of a rollout" in unknown.complaint
    again = edgekit("rollback", *NEWEST)
    assert (again.code, runs(farm)) == (0, [old.stem] * 5)


def test_partial_failure_is_exit_code_8_and_names_each_board(
    edgekit: Any, farm: Farm, ekb: Any
) -> None:
    farm.boards[1].lie.write_text(json.dumps({"machine": "riscv64"}))
    farm.boards[2].asleep.touch()
    done = edgekit("fleet", "deploy", ekb(), *QUICK, "--json")
    assert done.code == 8
    assert "found 3; 1 do not answer; run the same command to resume with them" in done.err
    states = {row["board"]: (row["state"], row["exit_code"]) for row in done.document["boards"]}
    assert states["sim0001"] == ("failed", 5)
    assert states["sim0002"] == ("asleep", 3)
    farm.boards[2].asleep.unlink()
    done = edgekit("fleet", "deploy", ekb(), *QUICK)
    assert done.code == 8
    assert "boards   4 done, 1 failed" in done.out
    assert done.out.splitlines()[-3].startswith("sim0001")


def test_a_bad_release_touches_one_board(edgekit: Any, farm: Farm, ekb: Any) -> None:
    done = edgekit("fleet", "deploy", ekb("TINY_WRONG"), *QUICK)
    assert done.code == 8
    assert "stopped: canary 'sim0000' failed" in done.err
    assert "undo it: edgekit rollback --rollout 2" in done.err
    assert [len(board.applied()) for board in farm.boards] == [1, 0, 0, 0, 0]
    assert "1 failed, 4 waiting" in edgekit("status", *NEWEST).out


def test_ctrl_c_and_the_same_command_again(edgekit: Any, farm: Farm, ekb: Any, home: Path) -> None:
    file = ekb()
    code = "import sys; from edgekit.host.cli.main import run; sys.argv[0] = 'edgekit'; run()"
    command = [sys.executable, "-c", code, "fleet", "deploy", str(file), *QUICK]
    process = subprocess.Popen(
        command,
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    end = time.monotonic() + 120
    while not farm.boards[0].applied() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=AMPLE)
    assert process.returncode == 130, said
    assert "run it again to resume" in said
    other = edgekit("fleet", "deploy", ekb('TINY_NAME="other"'), *QUICK)
    assert other.code == 2
    assert "found it interrupted with 5 of these boards;" in other.err
    done = edgekit("fleet", "deploy", file, *QUICK)
    assert done.code == 0, done.err
    assert "resuming" in done.err
    assert [board.applied() for board in farm.boards] == [[f"committed {file.stem}"]] * 5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--select", "site=mars"), "found none that is 'mars'"),
        (("--batch", "0.5"), "--batch: expected a number of boards"),
        (("--max-failures", "200%"), "--max-failures: expected a number of boards"),
        (("--pause", "soon"), "--pause: expected a time"),
        (("--fail-above", "5"), "--fail-above: expected percent"),
        (("--name", "No Name"), "expected a name"),
        (("--min-agreement", "98"), "--min-agreement: expected a number between 0 and 1, found 98"),
        (("--min-agreement", "0.98"), "--min-agreement: expected a release with a float model"),
    ],
)
def test_bad_options(
    edgekit: Any, farm: Farm, ekb: Any, options: tuple[str, ...], expected: str
) -> None:
    done = edgekit("fleet", "deploy", ekb(), *options)
    assert done.code == 2
    assert expected in done.complaint
    assert not any(board.applied() for board in farm.boards)


def test_nothing_to_show_yet(edgekit: Any) -> None:
    for command in ("status", "rollback"):
        done = edgekit(command, *NEWEST)
        assert done.code == 2
        assert "start one: edgekit fleet deploy" in done.complaint


def test_a_rollout_is_no_single_board(edgekit: Any) -> None:
    for command in (
        ("status", "--verify"),
        ("status", "--board", "x"),
        ("rollback", "--name", "x"),
    ):
        done = edgekit(*command, *NEWEST)
        assert done.code == 2 and f"expected {command[1]} or --rollout" in done.complaint
    done = edgekit("rollback", "--parallel", "2")
    assert done.code == 2 and "expected --rollout with --parallel" in done.complaint

"""`--name NAME`: several models on a board; `status --verify` and reports of damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.deploy.bundle import sign_bundle


@pytest.fixture
def wake(edgekit: Any, home: Path, tiny: Any, deploy_once: Any) -> Path:
    """Deploys the tiny model and another one as `wake`; returns the folder of `wake`."""

    def deploy() -> None:
        for options, more in (((), ()), (('TINY_NAME="other"',), ("--name", "wake"))):
            file = home / "bundle.ekb"
            sign_bundle(tiny(*options)).write(file)
            assert edgekit("deploy", file, *more).code == 0

    return Path(deploy_once(deploy) / "named" / "wake")


@pytest.mark.slow
def test_status_lists_every_name(edgekit: Any, wake: Path) -> None:
    lines = edgekit("status").out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "board", "current", "runs", "previous", "as", "current", "runs", "previous"
    ]  # fmt: skip
    assert lines[4].split() == ["as", "wake"]
    document = edgekit("status", "--json").document
    assert document["current"]["model"] == "tiny"
    assert document["named"]["wake"]["current"]["model"] == "other"
    assert edgekit("status", "--name", "wake", "--json").document["current"]["model"] == "other"


@pytest.mark.slow
def test_commands_take_a_name(edgekit: Any, home: Path, wake: Path) -> None:
    np.savez(home / "x.npz", x=np.zeros(4, np.float32))
    files = ("--input", home / "x.npz", "--output", home / "y.npz")
    for name in ((), ("--name", "wake")):
        current = edgekit("status", *name, "--json").document["current"]
        assert edgekit("run", *files, *name, "--json").document["release"] == current["id"]
        found = edgekit("bench", "model", "--runs", "3", *name, "--json").document
        assert found["release"] == current["id"]
        assert edgekit("status", "--verify", *name).code == 0
    assert edgekit("rollback", "--name", "wake").code == 2
    done = edgekit("status", "--name", "none")
    assert done.code == 2 and "deployed as 'none', found none" in done.complaint
    done = edgekit("run", *files, "--name", "none")
    assert done.code == 2
    assert "deployed as 'none', found none; deployed: wake" in done.complaint


@pytest.mark.slow
def test_damage_is_one_line_and_the_way_back(
    edgekit: Any, home: Path, tiny: Any, wake: Path
) -> None:
    sign_bundle(tiny('TINY_NAME="third"')).write(home / "third.ekb")
    assert edgekit("deploy", home / "third.ekb", "--name", "wake").code == 0
    library = wake / "current" / "model.so"
    library.write_bytes(library.read_bytes()[:-1])
    done = edgekit("status", "--verify")
    assert done.code == 7
    assert "is damaged (model.so: expected" in done.complaint
    assert "runs again" in done.complaint
    done = edgekit("status", "--verify")
    assert done.code == 6
    done = edgekit("rollback", "--name", "wake")
    assert done.code == 6
    assert "is damaged: model.so: expected" in done.complaint
    found = edgekit("status", "--name", "wake")
    assert found.code == 0
    assert "damaged: model.so" in next(x for x in found.out.splitlines() if "previous" in x)
    assert edgekit("deploy", home / "third.ekb", "--name", "wake").code == 0
    done = edgekit("status", "--verify")
    assert done.code == 0
    assert "verified  3 releases: every file has the SHA-256" in done.out


def test_remove_takes_one_name_off_the_board(edgekit: Any, wake: Path) -> None:
    current = edgekit("status", "--name", "wake", "--json").document["current"]["id"]
    done = edgekit("remove", "--name", "wake")
    assert (done.code, done.out) == (0, f"removed  wake from local: {current}\n")
    assert not wake.exists()
    assert edgekit("status", "--json").document["named"] == {}
    done = edgekit("remove", "--name", "wake")
    assert done.code == 2
    assert "expected a model deployed as 'wake', found none; deployed: nothing" in done.complaint
    found = edgekit("remove", "--default", "--json").document
    assert (found["schema"], found["name"], len(found["releases"])) == ("edgekit.remove/1", "", 1)
    assert edgekit("status", "--json").document["current"] is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "expected --name NAME, or --default"),
        (("--name", "wake", "--default"), "found both"),
        (("--name", ""), "expected a name of 1 to 32"),
        (("--name", "../local"), "expected a name of 1 to 32"),
        (("--name", "nobody"), "found none; deployed: wake"),
        (("--name", "wake", "--board", "nowhere"), "nowhere"),
    ],
)
def test_remove_without_a_name_that_is_there(
    edgekit: Any, wake: Path, options: tuple[str, ...], complaint: str
) -> None:
    done = edgekit("remove", *options)
    assert done.code == 2
    assert complaint in done.complaint
    assert wake.is_dir()

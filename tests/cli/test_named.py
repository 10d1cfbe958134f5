"""`--as NAME`: several models on a board, from the command line; `verify`, and what damage says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.bundle import sign_bundle


@pytest.fixture
def wake(edgekit: Any, home: Path, tiny: Any) -> Path:
    """Deploys the tiny model by itself, and another as `wake`; the folder of its releases."""
    for options, more in (((), ()), (('TINY_NAME="other"',), ("--as", "wake"))):
        file = home / "bundle.ekb"
        sign_bundle(tiny(*options)).write(file)
        assert edgekit("deploy", file, *more).code == 0
    return home.parent / "home" / "boards" / "local" / "named" / "wake"


def test_status_lists_every_name(edgekit: Any, wake: Path) -> None:
    lines = edgekit("status").out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "board", "current", "previous", "as", "current", "previous"
    ]  # fmt: skip
    assert lines[3].split() == ["as", "wake"]
    document = edgekit("status", "--json").document
    assert document["current"]["model"] == "tiny"
    assert document["named"]["wake"]["current"]["model"] == "other"
    assert edgekit("status", "--as", "wake", "--json").document["current"]["model"] == "other"


def test_commands_take_a_name(edgekit: Any, home: Path, wake: Path) -> None:
    np.savez(home / "x.npz", x=np.zeros(4, np.float32))
    files = ("--input", home / "x.npz", "--output", home / "y.npz")
    for name in ((), ("--as", "wake")):
        current = edgekit("status", *name, "--json").document["current"]
        assert edgekit("run", *files, *name, "--json").document["release"] == current["id"]
        found = edgekit("bench", "model", "--runs", "3", *name, "--json").document
        assert found["release"] == current["id"]
        assert edgekit("verify", *name).code == 0
    assert edgekit("rollback", "--as", "wake").code == 2
    done = edgekit("run", *files, "--as", "none")
    assert done.code == 2
    assert "deployed as 'none', found none; there is: wake" in done.complaint


def test_damage_is_one_line_and_the_way_back(
    edgekit: Any, home: Path, tiny: Any, wake: Path
) -> None:
    sign_bundle(tiny('TINY_NAME="third"')).write(home / "third.ekb")
    assert edgekit("deploy", home / "third.ekb", "--as", "wake").code == 0
    library = wake / "current" / "model.so"
    library.write_bytes(library.read_bytes()[:-1])
    done = edgekit("verify")
    assert done.code == 7
    assert "is damaged (model.so: expected" in done.complaint
    assert "runs again" in done.complaint
    done = edgekit("verify")
    assert done.code == 6
    done = edgekit("rollback", "--as", "wake")
    assert done.code == 6
    assert "is damaged: model.so: expected" in done.complaint
    found = edgekit("status", "--as", "wake")
    assert found.code == 0
    assert "damaged: model.so" in found.out.splitlines()[2]
    assert edgekit("deploy", home / "third.ekb", "--as", "wake").code == 0
    assert edgekit("verify").code == 0

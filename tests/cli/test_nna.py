"""Output of compile, run and bench for a model on a board with an NNA."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.cli.compile import compile_bundle
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.kb.targets.board import BoardProfile, load_board
from tests.support.nna_model import tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture
def nna_here() -> BoardProfile:
    """This machine with the NNA of board nna2 and, for the compiler, that board's core speeds."""
    local, other = load_board("local"), load_board("nna2")
    return dataclasses.replace(local, nna=other.nna, compute=other.speeds)


def test_run_and_bench_tell_what_the_nna_does(
    edgekit: Any, home: Path, nna_here: BoardProfile, capfd: pytest.CaptureFixture[str]
) -> None:
    model = home / "tiny.ekb"
    np.savez(home / "x.npz", image=np.zeros((1, 33, 30, 3), np.int8))
    source, why = tiny_model(home / "tiny.tflite"), home / "why.json"
    compile_bundle(source, "local", explain=why, profile=nna_here).write(model)
    assert "NNA: 6 operators in " in capfd.readouterr().err
    account = json.loads((home / "why.json").read_text())["nna"]
    cycles = account["total"]["cycles"]

    ran = edgekit("run", model, "--input", "x.npz", "--output", "y.npz", "--json")
    assert ran.code == 0 and ran.document["nna"] == [account]
    shown = edgekit("run", "--input", "x.npz", "--output", "y.npz").out
    assert f"nna      6 operators in {cycles:,} cycles, without overlap " in shown
    assert "useful MACs of" in shown and "at the same time" in shown

    timed = edgekit("bench", "model", model, "--runs", "3", "--trace", "t.json", "--json")
    assert timed.code == 0 and timed.document["nna"] == account
    assert f"nna      6 operators in {cycles:,} cycles" in edgekit("bench", "model").out
    events = json.loads((home / "t.json").read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M"]
    assert any(name.endswith("as scheduled") for name in names)
    assert any("cycles" in e["args"].get("nna", "") for e in events if e["ph"] == "X")


@pytest.mark.exhaustive
def test_boards_without_an_nna_say_nothing_of_it(edgekit: Any, home: Path) -> None:
    model = tiny_model(home / "tiny.tflite")
    np.savez(home / "x.npz", image=np.zeros((1, 33, 30, 3), np.int8))
    ran = edgekit("run", model, "--input", "x.npz", "--output", "y.npz", "--json")
    assert ran.code == 0 and ran.document["nna"] == []
    assert "nna" not in edgekit("bench", "model").out


@pytest.mark.boards
@pytest.mark.exhaustive
def test_a_booted_board_has_the_account_of_what_was_compiled_for_it(
    edgekit: Any, home: Path
) -> None:
    model = tiny_model(home / "tiny.tflite")
    x = np.random.default_rng(3).integers(-128, 128, (1, 33, 30, 3)).astype(np.int8)
    np.savez(home / "x.npz", image=x)
    up = edgekit("board", "up", "a53", "--json").document["board"]
    try:
        address = f"{up['user']}@{up['host']}:{up['port']}"
        way = ("--host", address, "--identity", up["identity"], "--yes")
        assert edgekit("board", "add", "chip", "--profile", "nna2", *way).code == 0
        ran = edgekit(
            *("run", model, "--board", "chip", "--input", "x.npz", "--output", "y.npz", "--json")
        )
        timed = edgekit("bench", "model", model, "--board", "chip", "--runs", "3", "--json")
        shown = edgekit("run", "--board", "chip", "--input", "x.npz", "--output", "z.npz").out
    finally:
        edgekit("board", "down", "a53")
    (account,) = ran.document["nna"]
    assert account == timed.document["nna"] and account["total"]["cycles"] > 0
    assert f" operators in {account['total']['cycles']:,} cycles" in shown
    ((name, want),) = evaluate(import_model(model), {"image": x}).outputs.items()
    with np.load(home / "y.npz") as made:
        np.testing.assert_array_equal(made[name], want)

"""Other engines on the simulated core of a board: which ones run, and their reports."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.board_peers import ENGINES, PeerJob, Tools, estimate_peers
from edgekit.host.simulator.root import SystemRoot
from edgekit.host.simulator.run import run_job
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import answer, write_emulator, write_program


@pytest.fixture
def board(tmp_path, monkeypatch):
    """board(does): tools with an rpi4 root whose Python is faked by the shell command `does`."""
    root = SystemRoot("aarch64", tmp_path / "root", "3.11")
    root.interpreter.parent.mkdir(parents=True)
    write_program(root.interpreter)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def tools(does: str) -> Tools:
        write_emulator(tmp_path, answer(cycles=1_800_000), does)
        run = partial(run_job, plugin=Path("plugin.so"))
        return Tools(lambda *_: root, lambda *_: tmp_path / "site", lambda *_: root, run)

    return tools


def peers_of(tools: Tools, model: Path, profile: str = "rpi4", f32: bool = True) -> dict:
    target = target_of(load_board(profile))
    found = estimate_peers(PeerJob(model, target, 1, {}, f32, 60), lambda _: None, tools)
    assert [peer.name for peer in found] == list(ENGINES)
    return {peer.name: peer for peer in found}


def test_an_engine_is_told_with_its_version_and_ratio(board, tmp_path):
    tools = board("echo 'INFO: created'; echo version 2.3.0")
    model = tmp_path / "model.onnx"
    model.touch()
    found = peers_of(tools, model)["onnxruntime"]
    assert (found.version, found.milliseconds) == ("2.3.0", 1.0)
    assert found.times(0.5).ratio == 2.0


@pytest.mark.parametrize(("f32", "shown"), [(True, "f32"), (False, "default")])
def test_engines_are_told_what_to_compute_in(board, tmp_path, f32, shown):
    tools = board(f'echo "$@" >> {tmp_path}/said; echo version 1')
    model = tmp_path / "model.onnx"
    model.touch()
    peers_of(tools, model, f32=f32)
    (said,) = (tmp_path / "said").read_text().splitlines()
    assert "peer.py onnxruntime" in said and said.endswith(f" {shown}")


def test_engines_that_do_not_run_the_format_say_which_they_run(board, tmp_path):
    tools = board("echo version 1")
    model = tmp_path / "model.onnx"
    model.touch()
    assert peers_of(tools, model)["litert"].times(1).missing == "runs .tflite models only"


def test_an_engine_that_fails_is_told_in_its_place(board, tmp_path):
    tools = board("echo unknown operator; exit 1")
    model = tmp_path / "model.onnx"
    model.touch()
    assert "found 1 (unknown operator)" in peers_of(tools, model)["onnxruntime"].missing


def test_boards_that_engines_have_no_wheels_for_are_refused(tmp_path):
    with pytest.raises(InputError, match="expected a board of aarch64 or riscv64 for --peers"):
        peers_of(Tools(), tmp_path / "model.onnx", "a7")


def test_on_risc_v_only_engines_with_wheels_are_asked(board, tmp_path):
    tools = board("echo version 1")
    model = tmp_path / "model.onnx"
    model.touch()
    assert peers_of(tools, model, "visionfive2")["mnn"].missing == "has no wheels for riscv64"

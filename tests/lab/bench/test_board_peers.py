"""Other engines on the simulated core of a board: which ones run, and their reports."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.lab.bench.board_peers import ENGINES, PeerJob, Tools, estimate_peers
from edgekit.host.lab.bench.peer_check import (
    Expected,
    expected_of,
    largest_error,
    read_outputs,
    write_inputs,
)
from edgekit.host.simulator.guest import peer
from edgekit.host.simulator.root import SystemRoot
from edgekit.host.simulator.run import run_job
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import answer, write_emulator, write_program


@pytest.fixture
def board(tmp_path, monkeypatch):
    """board(does): tools with a root whose Python is faked by the shell command `does`, which gets
    its arguments as the board's Python would; the model's input and output are 1 and 2."""
    root = SystemRoot("aarch64", tmp_path / "root", "3.11")
    root.interpreter.parent.mkdir(parents=True)
    write_program(root.interpreter)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def tools(does: str, output: float = 2, half: float = 2) -> Tools:
        choose = f'[ "$last" = f16 ] && {{\n{_writes(half)}}}\n' if half != output else ""
        write_emulator(
            tmp_path, answer(cycles=1_800_000), _ARGUMENTS + _writes(output) + choose + does
        )
        run = partial(run_job, plugin=Path("plugin.so"))
        site, one = tmp_path / "site", np.ones(1, np.float32)
        expected = Expected({"x": one}, (2 * one,), (2.0,))
        return Tools(
            lambda *_: root,
            lambda *_: site,
            lambda *_: root,
            run,
            lambda *_: expected,
            lambda _, model, *__: model,
        )

    return tools


# The guest program's folder is its last argument but one, the precision the last.
_ARGUMENTS = "for each; do folder=$last; last=$each; done\n"


def _writes(value: float) -> str:
    """Shell lines that write an output as the guest program does."""
    octal = "".join(f"\\{byte:03o}" for byte in np.float32(value).tobytes())
    described = json.dumps([{"shape": [1], "dtype": "float32"}])
    return f"""
echo '{described}' > "$folder/outputs.json"
printf '{octal}' > "$folder/out0"
"""


def peers_of(tools: Tools, model: Path, profile: str = "rpi4", f32: bool = True) -> dict:
    target, precisions = target_of(load_board(profile)), ("f32",) if f32 else ("f16", "f32")
    found = estimate_peers(PeerJob(model, target, 1, {}, precisions, 60), lambda _: None, tools)
    assert [peer.name for peer in found] == list(ENGINES)
    return {peer.name: peer for peer in found}


def test_an_engine_is_shown_with_its_version_and_ratio(board, tmp_path):
    tools = board("echo 'INFO: created'; echo version 2.3.0")
    model = tmp_path / "model.onnx"
    model.touch()
    found = peers_of(tools, model)["onnxruntime"]
    assert (found.version, found.milliseconds) == ("2.3.0", 1.0)
    assert found.times(0.5).ratio == 2.0


@pytest.mark.parametrize(
    ("profile", "f32", "asked"),
    [("rpi4", False, ["f32"]), ("rpi5", True, ["f32"]), ("rpi5", False, ["f16", "f32"])],
)
def test_engines_run_in_each_precision_that_ours_may_use(board, tmp_path, profile, f32, asked):
    tools = board(f'echo "$@" >> {tmp_path}/said; echo version 1')
    model = tmp_path / "model.onnx"
    model.touch()
    peers_of(tools, model, profile, f32=f32)
    said = [line.split() for line in (tmp_path / "said").read_text().splitlines()]
    for name in ("onnxruntime", "mnn", "ncnn"):
        assert [words[-1] for words in said if name in words] == asked


@pytest.mark.parametrize(("half", "precision"), [(2.03, "f16"), (2.05, "f32")])
def test_the_fastest_precision_with_right_outputs_counts(board, tmp_path, half, precision):
    model = tmp_path / "model.onnx"
    model.touch()
    found = peers_of(board("echo version 1", half=half), model, "rpi5", f32=False)["mnn"]
    assert found.cost is not None and found.precision == precision
    assert found.error == pytest.approx(0.015 if precision == "f16" else 0.0, abs=1e-6)


def test_an_engine_whose_outputs_are_wrong_has_no_time(board, tmp_path):
    """MNN once "took" 0.0038 ms for a network of recurrent layers, which it had refused to run."""
    model = tmp_path / "model.tflite"
    model.touch()
    found = peers_of(board("echo version 1", output=3), model)["litert"]
    assert found.cost is None and "found 50.00% in f32" in found.missing


def test_engines_that_do_not_run_the_format_say_which_they_run(board, tmp_path):
    tools = board("echo version 1")
    model = tmp_path / "model.onnx"
    model.touch()
    assert peers_of(tools, model)["litert"].times(1).missing == "runs .tflite models only"


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo unknown operator; exit 1", "found 1 (unknown operator)"),
        ("echo last words; kill -SEGV $$", "killed by SIGSEGV (last words)"),
        ('rm "$folder/outputs.json"', "wrote no outputs that can be read"),
        ('rm "$folder/out0"', "wrote no outputs that can be read"),
    ],
    ids=["fails", "crashes", "no outputs", "no output"],
)
def test_a_failed_engine_is_shown_in_its_place(board, tmp_path, does, said):
    tools = board(f"case $* in *onnxruntime*) {does};; esac; echo version 1")
    model = tmp_path / "model.onnx"
    model.touch()
    found = peers_of(tools, model)
    assert said in found["onnxruntime"].missing
    assert str(tmp_path) not in found["onnxruntime"].missing
    assert found["mnn"].milliseconds == 1.0


def test_a_board_that_engines_have_no_wheels_for_has_none(tmp_path):
    found = peers_of(Tools(), tmp_path / "model.onnx", "a7")
    assert {peer.missing for peer in found.values()} == {"has no wheels for armv7l"}


def test_on_risc_v_only_engines_with_wheels_are_asked(board, tmp_path):
    tools = board("echo version 1")
    model = tmp_path / "model.onnx"
    model.touch()
    assert peers_of(tools, model, "visionfive2")["mnn"].missing == "has no wheels for riscv64"


def test_outputs_are_compared_in_any_order_and_with_any_dimensions_of_one():
    expected = Expected({}, (np.arange(6.0).reshape(2, 3), np.array([4])), (5.0, 0.0))
    found = [np.array([[4]]), np.arange(6.0).reshape(1, 2, 3) + 0.05]
    assert largest_error(expected, found) == pytest.approx(0.01)
    assert largest_error(expected, found[:1]) == math.inf
    assert largest_error(expected, [found[0], np.full(6, np.nan)]) == math.inf
    assert largest_error(expected, [np.array([5]), found[1]]) == math.inf


def test_inputs_and_outputs_are_those_of_the_reference(tmp_path):
    expected = expected_of(Path(__file__).parents[3] / "models" / "okay_nabu.tflite", {})
    write_inputs(expected, tmp_path)
    (described,) = json.loads((tmp_path / "inputs.json").read_text())
    (name, values), (output,) = *expected.inputs.items(), expected.outputs
    assert described == {"name": name, "shape": list(values.shape), "dtype": values.dtype.name}
    assert (tmp_path / "in0").read_bytes() == values.tobytes()
    assert output.size == 1 and expected.units == (255.0,)


@pytest.mark.parametrize("shape", [(1, 3), (2, 1, 3), (1, 2, 3), (4,)])
def test_ncnn_gets_inputs_without_a_batch_of_one_only(shape, tmp_path):
    x = np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)
    model = tmp_path / "model.param"
    model.write_text("7767517\n2 2\nInput in0 0 1 x\nAbsVal out0 1 1 x y\n")
    model.with_suffix(".bin").write_bytes(b"")
    write_inputs(Expected({"x": x}, (x,), (1.0,)), tmp_path)
    driver = Path(peer.__file__)
    command = [sys.executable, str(driver), "ncnn", str(model), "1", str(tmp_path), "f32"]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = read_outputs(tmp_path)
    assert found.size == x.size
    np.testing.assert_array_equal(found.ravel(), x.ravel())

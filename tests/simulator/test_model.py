"""A compiled model under the emulator: the runner's outputs match, the plugin times operators."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.manifest import WEIGHTS
from edgekit.host.compiler.exporters import write_onnx
from edgekit.host.compiler.ir.types import DType
from edgekit.host.deploy.api import compile_model
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import InputError
from edgekit.host.simulator.emulator import find_emulator, spelled
from edgekit.host.simulator.model import estimate_model, operator_costs, runner_of
from edgekit.host.simulator.run import Region, SimulatedCost
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support import plain_graphs
from tests.support.op_cases import Case, tensor
from tests.support.op_graphs import graph_of
from tests.support.places import few_or_all

_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"
_ESTIMATE = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board

made = Bundle.read(Path(sys.argv[1]))
found = estimate_model(made.manifest, made.files, target_of(load_board(sys.argv[2])))
print(json.dumps(asdict(found.cost)))
"""
_EMULATORS = ("qemu-aarch64", "qemu-arm", "qemu-riscv64")
_MARKS = [
    pytest.mark.cross,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, _EMULATORS)),
        reason="QEMU's user emulators are not installed: apt-get install qemu-user",
    ),
]


def emulated(test):
    for mark in _MARKS:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def bundle():
    made: dict[str, Bundle] = {}

    def of(board: str) -> Bundle:
        return made.setdefault(board, compile_model(_MODEL, board))

    return of


def _outputs(bundle: Bundle, board: str, folder: Path, threads: int) -> bytes:
    """Outputs of the runner, without the plugin."""
    target, variant = target_of(load_board(board)), bundle.manifest.every_variant()[0]
    files = {"model.so": variant.library, "weights.bin": WEIGHTS}
    for name, source in files.items():
        (folder / name).write_bytes(bundle.files[source])
    (folder / "in").write_bytes(b"".join(bundle.files[n] for n in variant.golden.inputs))
    memory = variant.memory
    sizes = [",".join(str(s.bytes) for s in specs) for specs in (variant.inputs, variant.outputs)]
    numbers = (memory.arena_bytes, memory.state_bytes, threads, len(variant.operators))
    emulator = find_emulator(target.board.arch).path
    command = [emulator, "-cpu", spelled(emulator, target.cpu)]
    command += [str(runner_of(target.board.arch)), *files, *map(str, numbers), "in", "out", *sizes]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    advice = "call those of activations.h, or add it to host/simulator/runner/symbols.h"
    assert done.returncode == 0, f"{done.stderr}; a function of libm: {advice}"
    return (folder / "out").read_bytes()


@emulated
@pytest.mark.parametrize(
    ("board", "threads"),
    few_or_all(
        itertools.product(("rpi4", "bpi-f3", "bpi-f3-ime", "a7", "visionfive2"), (1, 2)),
        [("rpi4", 2), ("bpi-f3", 1), ("bpi-f3-ime", 2)],
    ),
)
def test_the_runner_computes_the_golden_outputs(board, threads, bundle, tmp_path):
    found = _outputs(bundle(board), board, tmp_path, threads)
    golden = bundle(board).manifest.golden
    expected = b"".join(bundle(board).files[name] for name in golden.outputs)
    difference = np.frombuffer(found, np.uint8).astype(int) - np.frombuffer(expected, np.uint8)
    assert np.abs(difference).max() <= max(golden.tolerances)


@emulated
def test_a_matrix_unit_that_qemu_lacks_takes_its_own_time_and_not_its_handler_s(bundle):
    cycles = []
    for board in ("bpi-f3-ime", "bpi-f3"):
        made = bundle(board)
        found = estimate_model(made.manifest, made.files, target_of(load_board(board)))
        assert found.unmodelled == 0
        cycles.append(found.cost.cycles)
    assert 0.3 * cycles[1] < cycles[0] < cycles[1]


def _in_onnx(case: Case) -> bool:
    try:
        write_onnx(graph_of([case]))
    except InputError:
        return False
    return True


@emulated
@pytest.mark.parametrize("board", few_or_all(["rpi4", "a7", "bpi-f3"], ["rpi4"]))
def test_the_runner_has_every_function_that_kernels_call(board, tmp_path):
    rng = np.random.default_rng(1)
    drawn = [*plain_graphs.every_function(rng), *plain_graphs.every_operand(rng)]
    floats = [c for c in drawn if c.op.infer(c.ins)[0][1] is DType.F32]
    # of inputs: constants would be folded
    cases = [Case(c.op, tuple(tensor(t.shape) for t in c.ins)) for c in floats]
    cases = [case for case in cases if _in_onnx(case)]
    assert len(cases) > 40
    path = tmp_path / "functions.onnx"
    path.write_bytes(write_onnx(graph_of(cases)))
    made = compile_model(path, board)
    found = np.frombuffer(_outputs(made, board, tmp_path, 1), np.float32)
    golden = b"".join(made.files[name] for name in made.manifest.golden.outputs)
    np.testing.assert_allclose(found, np.frombuffer(golden, np.float32), 2e-6, 2e-6)


@emulated
@pytest.mark.parametrize(
    "board",
    [
        *("rpi4", "a7", "bpi-f3"),
        *(pytest.param(b, marks=pytest.mark.exhaustive) for b in ("rpi3", "rk3399")),
    ],
)
def test_every_operator_is_timed_and_again_alike(board, bundle, tmp_path):
    (elsewhere := tmp_path / "a folder with a longer name").mkdir()
    made = bundle(board)
    target = target_of(load_board(board))
    first = estimate_model(made.manifest, made.files, target)
    made.write(tmp_path / "made.ekb")
    second = subprocess.run(
        [sys.executable, "-c", _ESTIMATE, tmp_path / "made.ekb", board],
        env={**os.environ, "NOISE": "x" * 1000, "TMPDIR": str(elsewhere)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert [o.spec for o in first.operators] == list(made.manifest.operators)
    assert sum(first.cost.bound.values()) == first.cost.cycles
    assert all(sum(o.cost.bound.values()) == o.cost.cycles for o in first.operators)
    assert first.kind == "int8" and first.cost.instructions > 20_000
    assert asdict(first.cost) == json.loads(second)


def test_operators_are_known_by_their_time_stamps_in_whatever_order_they_ran(bundle):
    laps = tuple(SimulatedCost(n, 1, {"issue": n}) for n in range(6))
    region = Region(laps[5], laps, (), (0, -1, 2, -1, 1, 0))
    specs = bundle("rpi4").manifest.operators
    assert [o.cost.cycles for o in operator_costs(specs[:2], region)] == [4, 2]
    assert operator_costs(specs[:3], region) == ()
    beside = replace(region, other_laps=(SimulatedCost(9, 1, {"issue": 9}),), other_stamps=(3,))
    assert [o.cost.cycles for o in operator_costs(specs[:3], beside)] == [4, 2, 9]


@emulated
def test_operators_that_clusters_run_side_by_side_are_timed_on_the_thread_that_ran_them(bundle):
    made, target = bundle("rk3399"), target_of(load_board("rk3399"))
    first, second = (estimate_model(made.manifest, made.files, target, 2) for _ in range(2))
    assert first == second
    assert [o.spec for o in first.operators] == list(made.manifest.operators)
    assert all(o.cost.cycles <= first.cost.cycles for o in first.operators)


@emulated
def test_four_threads_take_the_same_cycles_again(bundle):
    made, target = bundle("rpi4"), target_of(load_board("rpi4"))
    first, second = (estimate_model(made.manifest, made.files, target, 4) for _ in range(2))
    assert first == second

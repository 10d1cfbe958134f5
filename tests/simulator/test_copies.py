"""Estimated cycles of data movement."""

from __future__ import annotations

import shutil

import pytest

from edgekit.host.compiler.exporters import write_tflite
from edgekit.host.compiler.ir import ops
from edgekit.host.deploy.api import compile_model
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.op_cases import Case, tensor
from tests.support.op_graphs import graph_of

pytestmark = [
    pytest.mark.cross,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="apt-get install qemu-user"),
]


def test_short_runs_that_are_filled_take_few_cycles_each(tmp_path):
    """Each run took 26 cycles as five one-iteration loops; now 5, plus 14 for its copy."""
    pixels = 32 * 32
    op = ops.Pad((0, 0, 0, 0), (0, 0, 0, 4))
    model = tmp_path / "pad.tflite"
    model.write_bytes(write_tflite(graph_of([Case(op, (tensor((1, 32, 32, 28)),))])))
    bundle = compile_model(model, "rpi5")
    board = target_of(load_board("rpi5"))
    cycles = estimate_model(bundle.manifest, bundle.files, board).cost.cycles
    assert cycles < 25 * pixels

"""Joined convolutions of groups of channels under qemu: f16, and f32 on a core in order."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Padding
from edgekit.host.compiler.lowering.conv.grouped_conv import join_groups
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, HALF, half_board
from tests.support.grouped_graphs import SIZES, grouped
from tests.support.half_graphs import check_half, in_half
from tests.support.kernel_runs import build, check
from tests.support.op_graphs import inputs_of

pytestmark = pytest.mark.cross
# The last has sums of more than 512 products.
_SIZES = (*SIZES, (2, 64, 16, 5))


def _run(graph, board, machine, folder):
    folder.mkdir()
    inputs = inputs_of(graph)
    built = build(graph, board, folder / "release")
    (row,) = machine.run(built, Cases((inputs["x"][np.newaxis],), 1), folder)
    return inputs, {"y": row[0]}


@pytest.mark.parametrize("core", ["a76", "a53", "x60"])
def test_joined_groups_on_other_cores(core, virtual_board, tmp_path):
    half = core in HALF
    profile, cpu = HALF[core] if half else (core, CPUS[core])
    machine = virtual_board(profile, cpu)
    board = half_board(profile) if half else load_board(profile)
    joined = 0
    for i, size in enumerate(_SIZES):
        op = ops.Conv2D((2, 2), padding=Padding(1, 1, 1, 1), activation=Activation.RELU)
        graph = in_half(grouped(size, op)) if half else grouped(size, op)
        made = join_groups(graph, board, KnowledgeBase((board.platform,)))
        joined += any(node.op.kind == "grouped_conv2d" for node in made.nodes)
        inputs, found = _run(made, board, machine, tmp_path / str(i))
        (check_half if half else check)(made, found, inputs)
    assert joined >= len(_SIZES) - 3

"""Work is counted as the method that a board's kernels use."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.costs.work import WINOGRAD, work_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Padding
from edgekit.host.compiler.lowering.lower import lower
from edgekit.kb.targets.board import load_board
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of


@pytest.mark.parametrize(
    ("name", "largest", "transforms"),
    [("a72", 127, True), ("a72", 255, False), ("a76", 127, False)],
)
def test_bytes_that_are_transformed_are_counted_as_products_of_tiles(name, largest, transforms):
    """Of 61 channels, which the kernel rounds up; weights above 227 overflow its integers, and
    other boards have dot products."""
    board, q = load_board(name), quant(0.02)
    weights = np.random.default_rng(0).integers(0, largest + 1, (64, 3, 3, 61))
    case = Case(
        ops.Conv2D(padding=Padding(1, 1, 1, 1)),
        (tensor((1, 40, 40, 61), DType.U8, q), constant(weights, DType.U8, q), None),
        quant(9),
    )
    graph = graph_of([case])
    work = work_of(graph, graph.nodes[0], board.isa.vl, board)
    (step,) = lower(graph, board).lowered.steps
    assert step.compiled is not None
    assert (step.compiled.method.family == WINOGRAD, work.op == WINOGRAD) == (transforms,) * 2
    assert work.amounts.steps == (100 * 36 * 64 * 64 if transforms else 1600 * 9 * 61 * 64)

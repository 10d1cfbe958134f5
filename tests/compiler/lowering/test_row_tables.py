"""Rows by 2-bit weights that look sums up: which do, and what the rounding of sums costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.lowering.gemm.row_tables import with_tables
from edgekit.host.compiler.lowering.lower import lower
from edgekit.kb.targets.board import load_board
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of

_SCALE = 0.25


def _row(
    n: int = 256, k: int = 512, group: int = 64, least: int = -2, most: int = 2, rows: int = 1
) -> Graph:
    values = np.random.default_rng(1).integers(least, most, (n, k))
    scales = np.full((k // group, n), _SCALE)
    operands = tensor((rows, k)), constant(values, DType.I8), constant(scales)
    return graph_of([Case(ops.OutlierFullyConnected(1e30), operands)])


@pytest.mark.parametrize(
    ("board", "graph", "looks"),
    [
        ("rpi3", _row(), True),
        ("rpi4", _row(least=-1), True),
        ("rpi4", _row(n=200), True),
        ("rpi4", _row(n=128), False),
        ("rpi4", _row(group=512), False),
        ("rpi4", _row(k=160, group=160), False),  # its only scale is repeated
        ("rpi4", _row(least=-4), False),
        ("rpi4", _row(rows=2), False),
        ("rpi5", _row(), False),
        ("orangepi-pc", _row(), False),
        ("bpi-f3", _row(), False),
    ],
)
def test_a_row_looks_up_where_that_is_faster_and_says_so(board, graph, looks):
    profile = load_board(board)
    made = with_tables(graph, profile)
    assert (made is not graph) == looks
    (step,) = lower(made, profile).lowered.steps
    assert ("sums of two products looked up" in step.compiled.choice.why) == looks
    assert ("not looked up" in step.compiled.choice.why) == (not looks)


@pytest.mark.parametrize("least", [-2, -1])
@pytest.mark.parametrize("group", [32, 64, 256])
def test_the_error_is_that_of_quantized_activations(least, group):
    graph = _row(group=group, least=least)
    (node,) = graph.nodes
    looking = replace(graph, nodes=(replace(node, op=replace(node.op, tables=True)),))
    x = np.random.default_rng(2).standard_normal((1, 512)).astype(np.float32)
    weights = graph.tensors[node.inputs[1]].data.astype(np.float64)
    exact = _SCALE * (x.astype(np.float64) @ weights.T)
    found = evaluate(looking, {graph.inputs[0]: x}).outputs[graph.outputs[0]]
    pairs = np.abs(x).reshape(-1, group // 2, 2).sum(axis=2)
    step = pairs.max(axis=1) * (1.5 if least == -2 else 1.0) / 127
    assert np.abs(found - exact).max() <= _SCALE * (0.52 * step * (group // 2 + 1)).sum()
    by_bytes = evaluate(graph, {graph.inputs[0]: x}).outputs[graph.outputs[0]]
    assert np.linalg.norm(found - exact) < 1.25 * np.linalg.norm(by_bytes - exact)

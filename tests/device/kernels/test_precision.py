"""Long f32 sums are accurate to a few units in the last place, however large they grow."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from tests.support.kernel_runs import build, run_here, x86_params
from tests.support.op_cases import Case, tensor
from tests.support.op_graphs import graph_of

_UNITS = 24 * 2.0**-24
_LONG = 90_000


@pytest.mark.parametrize("board", x86_params())
def test_long_sums(board, tmp_path):
    graph = graph_of(
        [
            Case(ops.Mean((1, 2), True), (tensor((1, 300, 300, 3)),)),
            Case(ops.AveragePool2D((250, 250)), (tensor((1, 250, 250, 3)),)),
            Case(ops.ReduceSum((0,), False), (tensor((_LONG, 5)),)),
            Case(ops.ReduceSum((1,), False), (tensor((2, _LONG)),)),
        ]
    )
    values = np.random.default_rng(3)
    inputs = {
        name: values.uniform(0.6, 0.7, graph.tensors[name].shape).astype(np.float32)
        for name in graph.inputs
    }
    made = run_here(build(graph, board, tmp_path), inputs)
    for name, want in evaluate(graph, inputs).outputs.items():
        np.testing.assert_allclose(made[name], want, rtol=_UNITS)


@pytest.mark.parametrize("board", x86_params())
def test_softmax_of_many_small_terms_beside_a_large_one(board, tmp_path):
    graph = graph_of([Case(ops.Softmax(), (tensor((1, 20_000)),))])
    x = np.random.default_rng(4).uniform(-17, -15, (1, 20_000)).astype(np.float32)
    x[0, 7] = 0.0
    inputs = {graph.inputs[0]: x}
    made = run_here(build(graph, board, tmp_path), inputs)
    for name, want in evaluate(graph, inputs).outputs.items():
        np.testing.assert_allclose(made[name], want, rtol=_UNITS)

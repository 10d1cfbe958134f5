"""Hard-swish becomes part of the convolution before it, where that stays an ordinary one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from kernel_runs import build, check, run_here, x86_boards
from op_graphs import inputs_of

from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.types import Activation, DType, Graph, Node, Operator, Tensor
from edgekit.host.lower.gates import fuse_gates


def _graph(op: Operator, w_shape: tuple[int, ...], outputs: tuple[str, ...] = ("z",)) -> Graph:
    w = np.random.default_rng(0).standard_normal(w_shape).astype(np.float32)
    shape = op.infer([Tensor("x", (1, 7, 9, 20), DType.F32), Tensor("w", w_shape, DType.F32)])[0][0]
    tensors = {
        "x": Tensor("x", (1, 7, 9, 20), DType.F32),
        "w": Tensor("w", w_shape, DType.F32, None, w),
        "y": Tensor("y", shape, DType.F32),
        "z": Tensor("z", shape, DType.F32),
    }
    nodes = (Node("c", op, ("x", "w", None), ("y",)), Node("h", ops.HardSwish(), ("y",), ("z",)))
    return Graph("gated", tensors, nodes, ("x",), outputs)


_CONV, _DEPTHWISE = (24, 3, 3, 20), (1, 3, 3, 20)


@pytest.mark.parametrize(
    ("op", "w_shape"),
    [(ops.Conv2D(), _CONV), (ops.Conv2D((2, 1)), _CONV), (ops.DepthwiseConv2D((2, 1)), _DEPTHWISE)],
)
@pytest.mark.parametrize("board", x86_boards(), ids=lambda b: b.simd)
def test_a_gate_is_part_of_the_convolution(op, w_shape, board, tmp_path):
    graph = _graph(op, w_shape)
    after = fuse_gates(graph)
    assert [n.op for n in after.nodes] == [dataclasses.replace(op, hard_swish=True)]
    inputs = inputs_of(graph)
    expected, made = (evaluate(g, inputs).outputs["z"] for g in (graph, after))
    np.testing.assert_array_equal(made, expected)
    check(after, run_here(build(after, board, tmp_path), inputs), inputs)


@pytest.mark.parametrize(
    "graph",
    [
        _graph(ops.Conv2D(), _CONV, ("z", "y")),  # read from outside
        _graph(ops.Conv2D(activation=Activation.RELU), _CONV),
    ],
)
def test_what_is_more_than_a_gate_stays(graph):
    assert fuse_gates(graph) is graph

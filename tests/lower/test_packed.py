"""Products of attention read and write through transposes, where a board has the kernel."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.types import DType, Graph, Node, Tensor
from edgekit.host.lower.lower import lower
from edgekit.host.lower.packed import with_views
from edgekit.kb.board import load_profile
from tests.support.op_graphs import inputs_of

_SHAPES = MappingProxyType(
    {
        **dict.fromkeys("QKV", (1, 17, 3, 8)),
        **dict.fromkeys("qv", (1, 3, 17, 8)),
        "k": (1, 3, 8, 17),
        **dict.fromkeys(("s", "scaled", "p"), (1, 3, 17, 17)),
        "o": (1, 3, 17, 8),
        "y": (1, 17, 3, 8),
    }
)


def _attention() -> Graph:
    tensors = {name: Tensor(name, shape, DType.F32) for name, shape in _SHAPES.items()}
    factor = np.full((1,), 0.25, np.float32)
    tensors["factor"] = Tensor("factor", (1,), DType.F32, None, factor)
    nodes = (
        Node("tq", ops.Transpose((0, 2, 1, 3)), ("Q",), ("q",)),
        Node("tk", ops.Transpose((0, 2, 3, 1)), ("K",), ("k",)),
        Node("tv", ops.Transpose((0, 2, 1, 3)), ("V",), ("v",)),
        Node("scores", ops.MatMul(), ("q", "k"), ("s",)),
        Node("scale", ops.Mul(), ("s", "factor"), ("scaled",)),
        Node("softmax", ops.Softmax(), ("scaled",), ("p",)),
        Node("values", ops.MatMul(), ("p", "v"), ("o",)),
        Node("to", ops.Transpose((0, 2, 1, 3)), ("o",), ("y",)),
    )
    return Graph("attention", tensors, nodes, ("Q", "K", "V"), ("y",))


@pytest.mark.parametrize("board", ["a53", "a76", "rv64gcv"])
def test_transposes_and_factors_around_products_are_read_through(board):
    graph = _attention()
    after = with_views(graph, load_profile(board))
    assert [n.name for n in after.nodes] == ["scores", "softmax", "values"]
    inputs = inputs_of(graph)
    want, made = (evaluate(g, inputs).outputs["y"] for g in (graph, after))
    np.testing.assert_array_equal(made, want)
    plan = lower(after, load_profile(board))
    assert len([s for s in plan.lowered.steps for _ in s.calls]) == 3


@pytest.mark.parametrize("board", ["x86-64-v4", "a7", "rv64gc"])
def test_other_boards_keep_transposes(board):
    graph = _attention()
    assert with_views(graph, load_profile(board)) is graph


def test_a_transpose_stays_that_others_read_or_whose_rows_are_apart():
    board, graph = load_profile("a53"), _attention()
    read = Graph("read", graph.tensors, graph.nodes, graph.inputs, ("y", "q"))
    assert "tq" in [n.name for n in with_views(read, board).nodes]
    turned = Tensor("P", (1, 3, 17, 17), DType.F32)
    nodes = (
        Node("tp", ops.Transpose((0, 1, 3, 2)), ("P",), ("p",)),
        Node("values", ops.MatMul(), ("p", "v"), ("o",)),
    )
    tensors = {name: graph.tensors[name] for name in ("p", "v", "o")} | {"P": turned}
    apart = Graph("apart", tensors, nodes, ("P", "v"), ("o",))
    assert [n.name for n in with_views(apart, board).nodes] == ["tp", "values"]

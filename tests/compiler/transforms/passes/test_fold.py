"""Constant folding and dead code elimination."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.ops import Add, Cast, Conv2D, Mul, ReadState, Split, WriteState
from edgekit.host.compiler.ir.types import DType, Graph, Node, State, Tensor
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.compiler.transforms.passes.fold import fold


def variable(name, *shape, dtype=DType.F32):
    return Tensor(name, shape, dtype)


def constant(name, values, sparse=False):
    dtype = next(d for d in DType if d.numpy == values.dtype)
    return Tensor(name, values.shape, dtype, None, values, sparse)


def graph_of(tensors, nodes, inputs, outputs, states=None):
    return Graph("g", {t.name: t for t in tensors}, tuple(nodes), inputs, outputs, states or {})


def test_what_depends_on_constants_only_becomes_one():
    a, b = constant("a", np.float32([1, 2])), constant("b", np.float32([3, 4]))
    tensors = [a, b, *(variable(n, 2) for n in ("x", "c", "d", "y"))]
    nodes = [
        Node("c", Add(), ("a", "b"), ("c",)),
        Node("d", Mul(), ("c", "b"), ("d",)),
        Node("y", Add(), ("x", "d"), ("y",)),
    ]
    before = graph_of(tensors, nodes, ("x",), ("y",))
    after = dead(fold(before))
    assert [n.name for n in after.nodes] == ["y"]
    assert set(after.tensors) == {"x", "d", "y"}
    np.testing.assert_array_equal(after.tensors["d"].data, [12, 24])
    x = {"x": np.float32([5, 6])}
    np.testing.assert_array_equal(evaluate(after, x).outputs["y"], evaluate(before, x).outputs["y"])
    assert before.tensors["d"].data is None


def test_the_mark_of_sparse_weights_survives_a_cast_only():
    half = constant("h", np.float16([0, 2]), sparse=True)
    tensors = [half, variable("f", 2), variable("g", 2)]
    nodes = [Node("f", Cast(), ("h",), ("f",)), Node("g", Add(), ("f", "f"), ("g",))]
    after = fold(graph_of(tensors, nodes, (), ("f", "g")))
    assert after.tensors["f"].sparse
    assert not after.tensors["g"].sparse


def test_states_are_not_folded():
    tensors = [constant("c", np.float32([1])), variable("r", 1), variable("y", 1)]
    nodes = [
        Node("r", ReadState("v", (1,), DType.F32), (), ("r",)),
        Node("w", WriteState("v"), ("c",), ()),
        Node("y", Add(), ("r", "c"), ("y",)),
    ]
    states = {"v": State("v", np.float32([5])), "unused": State("unused", np.float32([5]))}
    after = dead(fold(graph_of(tensors, nodes, (), ("y",), states)))
    assert [n.name for n in after.nodes] == ["r", "w", "y"]
    assert set(after.states) == {"v"}


def test_a_huge_convolution_of_constants_stays():
    image = constant("x", np.zeros((1, 512, 512, 4), np.float32))
    weights = constant("w", np.zeros((64, 3, 3, 4), np.float32))
    tensors = [image, weights, variable("y", 1, 510, 510, 64)]
    after = fold(graph_of(tensors, [Node("y", Conv2D(), ("x", "w"), ("y",))], (), ("y",)))
    assert [n.name for n in after.nodes] == ["y"]


def test_dead_keeps_unused_inputs_and_the_other_outputs_of_a_node():
    tensors = [variable(n, s) for n, s in (("x", 3), ("u", 1), ("a", 1), ("b", 2), ("z", 3))]
    nodes = [
        Node("s", Split(0, (1, 2)), ("x",), ("a", "b")),
        Node("z", Add(), ("x", "x"), ("z",)),
    ]
    after = dead(graph_of(tensors, nodes, ("x", "u"), ("b",)))
    assert [n.name for n in after.nodes] == ["s"]
    assert set(after.tensors) == {"x", "u", "a", "b"}


def test_a_chain_of_large_constants_is_held_one_by_one():
    first = constant("t0", np.zeros((16 << 20, 1), np.float32))
    tensors = [first, *(variable(f"t{i}", 16 << 20, 1) for i in range(1, 4))]
    nodes = [Node(f"n{i}", Add(), (f"t{i}", f"t{i}"), (f"t{i + 1}",)) for i in range(3)]
    after = fold(graph_of(tensors, nodes, (), ("t3",)))
    assert [n for n, t in after.tensors.items() if t.data is not None] == ["t3"]


@pytest.mark.slow
def test_results_out_of_proportion_to_the_constants_are_left_to_the_board():
    first = constant("c", np.zeros((16 << 20, 1), np.float32))
    tensors = [first, *(variable(f"t{i}", 16 << 20, 1) for i in range(6))]
    nodes = [Node(f"n{i}", Add(), ("c", "c"), (f"t{i}",)) for i in range(6)]
    graph = graph_of(tensors, nodes, (), tuple(f"t{i}" for i in range(6)))
    assert len(fold(replace(graph, given_bytes=64 << 20)).nodes) == 2
    assert len(fold(graph).nodes) == 5

"""Evaluating complete graphs: order, states, invalid inputs."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.ops import Add, ReadState, Split, WriteState
from edgekit.host.compiler.ir.types import DType, Graph, Node, State, Tensor


@pytest.fixture
def counter() -> Graph:
    """out = x + total; total becomes out."""
    shape = (2,)
    tensors = {n: Tensor(n, shape, DType.F32) for n in ("x", "before", "out")}
    nodes = (
        Node("read", ReadState("total", shape, DType.F32), (), ("before",)),
        Node("sum", Add(), ("x", "before"), ("out",)),
        Node("write", WriteState("total"), ("out",), ()),
    )
    states = {"total": State("total", np.float32([10, 20]))}
    return Graph("counter", tensors, nodes, ("x",), ("out",), states)


def test_states_start_with_their_initial_value_and_are_given_back(counter):
    first = evaluate(counter, {"x": np.float32([1, 2])})
    np.testing.assert_array_equal(first.outputs["out"], [11, 22])
    second = evaluate(counter, {"x": np.float32([1, 2])}, first.states)
    np.testing.assert_array_equal(second.outputs["out"], [12, 24])
    np.testing.assert_array_equal(counter.states["total"].initial, [10, 20])


def test_tensors_are_kept_if_asked_for(counter):
    x = {"x": np.float32([1, 2])}
    assert not evaluate(counter, x).tensors
    kept = evaluate(counter, x, keep_tensors=True).tensors
    np.testing.assert_array_equal(kept["before"], [10, 20])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input x, found none"),
        ({"x": np.zeros(3, np.float32)}, r"f32\[2\], found float32\[3\]"),
        ({"x": np.zeros(2, np.float64)}, r"found float64\[2\]"),
    ],
)
def test_wrong_inputs_are_refused(counter, inputs, message):
    with pytest.raises(ValueError, match=message):
        evaluate(counter, inputs)


def test_outputs_that_nobody_reads_may_be_dropped():
    tensors = {n: Tensor(n, s, DType.F32) for n, s in (("x", (3,)), ("a", (1,)), ("b", (2,)))}
    graph = Graph("g", tensors, (Node("s", Split(0, (1, 2)), ("x",), ("a", "b")),), ("x",), ("b",))
    found = evaluate(graph, {"x": np.float32([1, 2, 3])}).outputs
    np.testing.assert_array_equal(found["b"], [2, 3])

"""States as inputs and outputs compute what states do, run by run."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.exporters.states import with_states_outside
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph, Node, State, Tensor
from tests.support.op_cases import stateful_graph

_SHAPE = (3, 5)


def stateful(*nodes: Node) -> Graph:
    """x is the input, y the output; the states are s and t."""
    names = {name for node in nodes for name in (*node.inputs, *node.outputs)} | {"x"}
    states = {n: State(n, np.full(_SHAPE, i, np.float32)) for i, n in enumerate("st", 1)}
    tensors = {n: Tensor(n, _SHAPE, DType.F32) for n in sorted(filter(None, names))}
    return Graph("g", tensors, nodes, ("x",), ("y",), states)


def read(state: str, name: str) -> Node:
    return Node(f"read {name}", ops.ReadState(state), (), (name,))


def write(state: str, name: str) -> Node:
    return Node(f"write {state} {name}", ops.WriteState(state), (name,), ())


def add(one: str, other: str, name: str) -> Node:
    return Node(name, ops.Add(), (one, other), (name,))


GRAPHS = {
    "sum": stateful_graph(),
    "the input is kept": stateful(read("s", "a"), add("x", "a", "y"), write("s", "x")),
    "read twice": stateful(
        read("s", "a"), read("s", "b"), add("a", "b", "c"), add("c", "x", "y"), write("s", "c")
    ),
    "read after the write": stateful(
        read("s", "a"), add("x", "a", "b"), write("s", "b"), read("s", "c"), add("a", "c", "y")
    ),
    "written first": stateful(write("s", "x"), read("s", "a"), add("a", "x", "y")),
    "handed on": stateful(
        read("s", "a"), read("t", "b"), add("b", "x", "y"), write("t", "a"), write("s", "x")
    ),
    "never written": stateful(read("t", "a"), add("x", "a", "y")),
    "never read": stateful(add("x", "x", "y"), write("s", "y")),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
def test_runs_compute_the_same(graph: Graph):
    outside, states = with_states_outside(graph), None
    assert not outside.states and not with_states_outside(outside).states
    names = outside.inputs[1:]
    reads = {n.outputs[0]: n.op.state for n in graph.nodes if isinstance(n.op, ops.ReadState)}
    given = {name: graph.states[reads[name]].initial for name in names}
    rng = np.random.default_rng(1)
    for _ in range(4):
        x = rng.uniform(-1, 1, _SHAPE).astype(np.float32)
        expected = evaluate(graph, {"x": x}, states)
        found = evaluate(outside, {"x": x, **given}).outputs
        np.testing.assert_array_equal(found["y"], expected.outputs["y"])
        states = expected.states
        given = {name: found[f"{reads[name]}.next"] for name in names}
        for name in names:
            np.testing.assert_array_equal(given[name], states[reads[name]])


def test_names_of_the_file_stay():
    found = with_states_outside(stateful_graph())
    assert (found.inputs, found.outputs) == (("x", "old"), ("y", "s.next"))

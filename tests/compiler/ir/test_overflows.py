"""Which outputs random networks may not be judged by, because f32 overflows before them."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Tensor
from tests.support.overflows import overflows


def _graph(nodes: tuple[Node, ...], outputs: tuple[str, ...], **constants: float) -> Graph:
    names = {"x", *(name for node in nodes for name in node.outputs)}
    tensors = {name: Tensor(name, (2,), DType.F32) for name in names}
    tensors |= {
        name: Tensor(name, (2,), DType.F32, data=np.float32([value] * 2))
        for name, value in constants.items()
    }
    return Graph("net", tensors, nodes, ("x",), outputs)


def _node(op: Operator, inputs: tuple[str, ...], output: str) -> Node:
    return Node(output, op, inputs, (output,))


_BRANCHES = _graph(
    (
        _node(ops.Exp(), ("x",), "e"),
        _node(ops.Neg(), ("e",), "after"),
        _node(ops.Neg(), ("x",), "beside"),
    ),
    ("after", "beside"),
)


def test_only_outputs_after_an_overflow_depend_on_it():
    found = overflows(_BRANCHES, {"x": np.float32([1, 89]), "of another": np.float32([0, 0])})
    assert found == {"after": "Exp e: 1 infinite values of finite operands"}


def test_large_finite_values_are_no_overflow():
    assert overflows(_BRANCHES, {"x": np.float32([1, 88])}) == {}


def test_infinity_of_a_pole_or_of_an_operand_is_no_overflow():
    graph = _graph(
        (
            _node(ops.Div(), ("x", "zero"), "pole"),
            _node(ops.Log(), ("zero",), "log"),
            _node(ops.Maximum(), ("x", "endless"), "given"),
            _node(ops.Mul(), ("given", "x"), "passed"),
        ),
        ("pole", "log", "passed"),
        zero=0.0,
        endless=float("inf"),
    )
    assert overflows(graph, {"x": np.float32([1, 2])}) == {}


def test_infinity_that_comes_back_to_finite_values_is_still_found():
    nodes = (_node(ops.Mul(), ("x", "x"), "square"), _node(ops.Reciprocal(), ("square",), "y"))
    found = overflows(_graph(nodes, ("y",)), {"x": np.float32([1e30, 1])})
    assert found.keys() == {"y"}

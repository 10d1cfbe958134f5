"""Functions and transposes of concatenations are applied to their parts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Tensor
from edgekit.host.compiler.lowering.gemm.epilogues import fuse_epilogues
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.before_concat import move_before_concat
from edgekit.kb.targets.board import load_board
from tests.support.op_graphs import inputs_of

_ROWS, _LOGISTIC = (12, 6), ops.Logistic()


def _head(function: Operator = _LOGISTIC, classes: int = 9) -> Graph:
    """Scores of two scales, joined along the anchors, with a function, beside their boxes, and
    all transposed."""
    rng = np.random.default_rng(3)
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []

    def emit(name: str, op: Operator, *inputs: str | None) -> str:
        ins = [None if i is None else tensors[i] for i in inputs]
        ((shape, dtype),) = op.infer(ins)
        tensors[name] = Tensor(name, shape, dtype)
        nodes.append(Node(name, op, inputs, (name,)))
        return name

    tensors["boxes"] = Tensor("boxes", (1, sum(_ROWS), 4), DType.F32)
    parts = []
    for i, rows in enumerate(_ROWS):
        data = rng.standard_normal((classes, 1, 1, 5)).astype(np.float32)
        tensors[f"w{i}"] = Tensor(f"w{i}", data.shape, DType.F32, None, data)
        tensors[f"x{i}"] = Tensor(f"x{i}", (1, rows // 3, 3, 5), DType.F32)
        made = emit(f"scores{i}", ops.Conv2D(), f"x{i}", f"w{i}", None)
        parts.append(emit(f"rows{i}", ops.Reshape((1, rows, classes)), made))
    scores = emit("f", function, emit("scores", ops.Concat(1), *parts))
    both = emit("both", ops.Concat(2), "boxes", scores)
    emit("y", ops.Transpose((0, 2, 1)), both)
    return Graph("head", tensors, tuple(nodes), ("x0", "x1", "boxes"), ("y",))


@pytest.mark.parametrize("function", [ops.Logistic(), ops.Gelu(), ops.LeakyRelu(0.2)])
def test_nothing_copies_what_becomes_part_of_the_outputs(function):
    graph = _head(function)
    after = fuse_epilogues(move_before_concat(graph))
    kinds = ["conv2d", "reshape", "conv2d", "reshape", "concat", "transpose", "transpose", "concat"]
    assert [n.op.kind for n in after.nodes] == kinds
    inputs = inputs_of(graph)
    expected, made = (evaluate(g, inputs).outputs["y"] for g in (graph, after))
    np.testing.assert_array_equal(made, expected)
    steps = lower(after, load_board("a76")).lowered.steps
    assert not any("copy" in call.kernel.symbol for step in steps for call in step.calls)


@pytest.mark.parametrize(
    "graph",
    [
        _head(ops.Exp()),  # no product takes it
        _head(classes=4),  # too few channels
        dataclasses.replace(_head(), outputs=("y", "scores")),
        dataclasses.replace(_head(), outputs=("y", "rows1")),
    ],
)
def test_functions_stay_that_products_do_not_take(graph):
    after = move_before_concat(graph)
    assert [n.name for n in after.nodes][:6] == [n.name for n in graph.nodes][:6]


def test_transposes_stay_behind_parts_that_would_be_copied():
    graph = _head()
    last = dataclasses.replace(graph.nodes[-1], op=ops.Transpose((2, 0, 1)))
    tensors = {**graph.tensors, "y": Tensor("y", (13, 1, sum(_ROWS)), DType.F32)}
    turned = dataclasses.replace(graph, tensors=tensors, nodes=(*graph.nodes[:-1], last))
    assert move_before_concat(turned).nodes[-1].op == ops.Concat(0)
    last = dataclasses.replace(graph.nodes[-1], op=ops.Transpose((1, 0, 2)))
    tensors = {**graph.tensors, "y": Tensor("y", (sum(_ROWS), 1, 13), DType.F32)}
    turned = dataclasses.replace(graph, tensors=tensors, nodes=(*graph.nodes[:-1], last))
    assert move_before_concat(turned).nodes[-1] == last

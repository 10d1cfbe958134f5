"""Functions after 8-bit products are fused into them as lookup tables."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Tensor
from edgekit.host.compiler.lowering.conv.quantized_epilogues import look_ups_of
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.nna.units import NNA
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here, x86_params
from tests.support.op_cases import Case, constant, quant, stateful_graph, tensor
from tests.support.op_graphs import graph_of, inputs_of

_CHANNELS = 21


def _graph(op: Operator, operand: Tensor | None = None) -> Graph:
    """A convolution of an image, and a function of its result."""
    rng = np.random.default_rng(0)
    quantized = rng.integers(-127, 128, (_CHANNELS, 1, 1, 16))
    weights = constant(quantized, DType.I8, quant(np.full(_CHANNELS, 0.01)))
    operands = () if operand is None else (operand,)
    after = Case(op, operands, quant(0.02, -20))
    x = tensor((1, 5, 9, 16), DType.I8, quant(0.05, 3))
    return graph_of([Case(ops.Conv2D(), (x, weights, None), quant(0.1, -7), after)])


def _slopes(*shape: int) -> Tensor:
    quantized = np.random.default_rng(1).integers(-128, 128, shape)
    return constant(quantized, DType.I8, quant(0.01, 5))


_FORMS = [
    (ops.Tanh(), None, "_table_"),
    (ops.LeakyRelu(0.1), None, "_table_"),
    (ops.PRelu(), _slopes(1), "_table_"),
    (ops.PRelu(), _slopes(1, 1, _CHANNELS), "_tables_"),
]


@pytest.mark.parametrize(("op", "operand", "called"), _FORMS)
@pytest.mark.parametrize("board", x86_params())
def test_functions_are_part_of_the_product(op, operand, called, board, tmp_path):
    graph = _graph(op, operand)
    plan = lower(graph, board)
    (step,) = plan.lowered.steps
    assert called in step.kernel
    assert plan.memory.arena_bytes == 0  # no intermediate
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


@pytest.mark.parametrize("board", x86_params())
def test_gates_are_part_of_the_product(board, tmp_path):
    """x times a function of x: SiLU in the form that converters write for 8-bit models."""
    graph = _graph(ops.Logistic())
    between, (function,) = graph.nodes[0].outputs[0], graph.nodes[1].outputs
    y = Tensor("y", graph.tensors[between].shape, DType.I8, quant(0.03, -100))
    gate = Node("gate", ops.Mul(), (between, function), ("y",))
    graph = dataclasses.replace(
        graph, tensors={**graph.tensors, "y": y}, nodes=(*graph.nodes, gate), outputs=("y",)
    )
    (step,) = lower(graph, board).lowered.steps
    assert "_table_" in step.kernel
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


def test_what_else_reads_the_product_keeps_it():
    graph = _graph(ops.Tanh())
    between = graph.nodes[0].outputs[0]
    seen = dataclasses.replace(graph, outputs=(*graph.outputs, between))
    tensors = {**graph.tensors, "z": Tensor("z", graph.tensors[between].shape, DType.F32)}
    second = Node("second", ops.Cast(), (between,), ("z",))
    read = dataclasses.replace(
        graph, tensors=tensors, nodes=(*graph.nodes, second), outputs=(*graph.outputs, "z")
    )
    for each in (seen, read):
        assert not look_ups_of(each, {})
        assert len(lower(each, load_board("local")).lowered.steps) == len(each.nodes)


def test_operands_that_are_computed_or_not_by_channel_stay():
    computed = tensor((_CHANNELS,), DType.I8, quant(0.01))
    for operand in (computed, _slopes(9, 1), _slopes(5, 9, _CHANNELS)):
        assert not look_ups_of(_graph(ops.PRelu(), operand), {})


def test_both_run_on_the_same_cores():
    graph = _graph(ops.Tanh())
    product, function = (node.name for node in graph.nodes)
    assert not look_ups_of(graph, {product: NNA, function: NNA})
    assert not look_ups_of(graph, {product: "big"})
    assert look_ups_of(graph, {product: "big", function: "big"})


def test_operators_without_a_result_are_passed_over():
    graph = stateful_graph()
    assert any(not node.outputs for node in graph.nodes)
    assert look_ups_of(graph, {}) == {}

"""Additions of bytes: every pair of codes, where one linear form serves and where none does."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.graph import ops
from edgekit.host.graph.types import Activation, DType, Graph, Shape
from edgekit.host.lower.linear_sum import linear_sum
from edgekit.host.lower.lower import lower
from edgekit.kb.board import load_profile
from tests.support.kernel_runs import build, check, run_here, x86_params
from tests.support.op_cases import Case, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of

# Scales of a, b and y: as models have them, and such that sums lie halfway between codes.
_SCALES = [
    (0.0121, 0.0273, 0.0301),
    (0.5, 0.031, 0.27),
    (0.002, 0.9, 0.7),
    (1.0, 1.0, 2.0),
    (1e-7, 2e-7, 0.3),
]


def _graph(shape: Shape) -> Graph:
    cases = []
    for number, (a, b, y) in enumerate(_SCALES):
        for activation in (Activation.NONE, Activation.RELU):
            dtype, zero = (DType.I8, -5) if number % 2 else (DType.U8, 130)
            xs = tensor(shape, dtype, quant(a, zero)), tensor(shape, dtype, quant(b, zero - 9))
            cases.append(Case(ops.Add(activation), xs, quant(y, zero + 4)))
    return graph_of(cases)


@pytest.mark.parametrize("board", x86_params())
def test_every_pair_of_codes_has_the_sum_of_the_reference(board, tmp_path):
    graph = _graph((256, 256))
    inputs = {}
    for name in graph.inputs:
        info = np.iinfo(graph.tensors[name].dtype.numpy)
        codes = np.arange(info.min, info.max + 1).astype(info.dtype)
        pairs = np.meshgrid(codes, codes, indexing="ij")
        inputs[name] = pairs[int(name.endswith("in1"))].copy()
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


@pytest.mark.parametrize("board", x86_params())
def test_sums_of_odd_sizes(board, tmp_path):
    graph = _graph((3, 37, 41))
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


def test_sums_halfway_between_codes_have_no_linear_form():
    x, y = tensor((2,), DType.I8, quant(1.0, 0)), tensor((2,), DType.I8, quant(2.0, 0))
    assert linear_sum(ops.Add(), x, x, y, -128, 127) is None


def test_usual_scales_take_the_linear_form():
    plan = lower(_graph((2, 3)), load_profile("x86-64-v4"))
    names = [call.kernel.symbol for step in plan.lowered.steps for call in step.calls]
    assert all("linear_sum" in name for name in names[:2])

"""8-bit additions: every pair of quantized values, with and without a linear form."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.lowering.gemm.linear_sum import linear_sum
from edgekit.host.compiler.lowering.lower import lower
from edgekit.kb.targets.board import load_profile
from tests.support.kernel_runs import build, check, run_here, x86_params
from tests.support.op_cases import quant, tensor
from tests.support.op_graphs import inputs_of
from tests.support.sums import every_pair, sums_graph


@pytest.mark.parametrize("board", x86_params())
def test_every_pair_of_quantized_values_has_the_sum_of_the_reference(board, tmp_path):
    graph = sums_graph((256, 256))
    inputs = every_pair(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


@pytest.mark.parametrize("board", x86_params())
def test_sums_of_odd_sizes(board, tmp_path):
    graph = sums_graph((3, 37, 41))
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs, threads=2), inputs)


def test_sums_halfway_between_quantized_values_have_no_linear_form():
    x, y = tensor((2,), DType.I8, quant(1.0, 0)), tensor((2,), DType.I8, quant(2.0, 0))
    assert linear_sum(ops.Add(), x, x, y, -128, 127) is None


@pytest.mark.parametrize("sixteen", [False, True])
def test_factors_that_leave_no_room_have_no_linear_form(sixteen):
    x, y = tensor((2,), DType.I8, quant(1.0, 0)), tensor((2,), DType.I8, quant(1e-5, 0))
    assert linear_sum(ops.Add(), x, x, y, -128, 127, sixteen) is None


@pytest.mark.parametrize("board", ["x86-64-v4", "a53", "a76", "a7"])
def test_usual_scales_take_the_linear_form(board):
    plan = lower(sums_graph((2, 3)), load_profile(board))
    names = [call.kernel.symbol for step in plan.lowered.steps for call in step.calls]
    assert all("linear_sum" in name for name in names[:2])

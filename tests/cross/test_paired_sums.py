"""8-bit products without vectors, where a register holds the sums of two columns."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Padding
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8])
def test_sums_of_two_columns_do_not_touch(virtual_board, tmp_path, dtype):
    """Rests of rows, of columns and of k, weights with a zero point; small sums, which are outputs
    as they are, and the largest products next to the smallest."""
    rng, board, cases = np.random.default_rng(8), load_board("rv64gc"), []
    low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    zeros = (0, 0, 0) if dtype is DType.I8 else (128, 3, 255)
    sizes = ((5, 7, 19, 38), (1, 1, 515, 6), (6, 5, 33, 37))
    for zero, (h, w, c, oc) in zip(zeros, sizes, strict=True):
        kernel = 3 if h == 6 else 1
        weights = rng.integers(low, high + 1, (oc, kernel, kernel, c))
        weights[::2] = low
        weights[1::4] = high
        op = ops.Conv2D(padding=Padding(*4 * (kernel // 2,)))
        out = quant(c, 0)
        if c == 19:
            weights = zero + rng.integers(-2, 3, weights.shape)
            out = quant(0.0002, zero)
        x = tensor((1, h, w, c), dtype, quant(0.02, zero))
        cases.append(Case(op, (x, constant(weights, dtype, quant(0.01, zero)), None), out))
    graph = graph_of(cases)
    inputs = inputs_of(graph)
    first, *others = graph.inputs
    near = rng.integers(zeros[0] - 3, zeros[0] + 4, inputs[first].shape)
    inputs[first] = near.astype(dtype.numpy)
    for name, extreme in zip(others, (low, high), strict=True):
        inputs[name].flat[::3] = extreme
    folder = build(graph, board, tmp_path / "release")
    runs = Cases(tuple(inputs[n][None] for n in graph.inputs), steps=1)
    rows = virtual_board("rv64gc").run(folder, runs, tmp_path)
    check(graph, {n: row[0] for n, row in zip(graph.outputs, rows, strict=True)}, inputs)

"""8-bit convolutions whose products fit into 16 bits, and on ARM their outputs: extreme values."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Padding
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import cores
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of

pytestmark = pytest.mark.cross


def _depthwise(channels: int, side: int, stride: int, weight: int) -> Case:
    rng = np.random.default_rng(channels)
    data = rng.integers(-127, 128, (1, side, side, channels)).astype(np.int8)
    data[..., 0] = weight
    scales = rng.uniform(0.005, 0.02, channels).astype(np.float32)
    bias = constant(rng.integers(-9999, 9999, channels), DType.I32)
    x = tensor((1, 9, 11, channels), DType.I8, quant(0.05, -128))
    op = ops.DepthwiseConv2D((stride, stride), (1, 1), Padding(1, 1, 1, 1), 1)
    return Case(op, (x, constant(data, DType.I8, quant(scales, 0, 3)), bias), quant(0.4, -128))


def _convolution(channels: int, outputs: int, dtype: DType, factor: float, code: int) -> Case:
    rng = np.random.default_rng(outputs)
    info = np.iinfo(dtype.numpy)
    shape = (outputs, 3, 3, channels)
    data = rng.integers(info.min + 1, info.max + 1, shape).astype(dtype.numpy)
    data[0] = info.max
    zero = 0 if dtype is DType.I8 else 120
    bias = constant(rng.integers(-9999, 9999, outputs), DType.I32)
    x = tensor((1, 7, 9, channels), dtype, quant(0.05, info.min))
    op = ops.Conv2D((1, 1), (1, 1), Padding(1, 1, 1, 1))
    weights = constant(data, dtype, quant(0.02, zero))
    return Case(op, (x, weights, bias), quant(0.001 / factor, info.min + code))


def _graph() -> Graph:
    windows = [(3, 1), (3, 2), (5, 1), (5, 2)]
    cases = [
        _depthwise(channels, side, stride, weight)
        for side, stride in windows
        for channels, weight in ((8, 127), (13, -127), (24, 1), (3, 127))
    ]
    cases += [
        _convolution(channels, outputs, dtype, factor, code)
        for channels, outputs in ((16, 16), (5, 11), (8, 9))
        for dtype in (DType.I8, DType.U8)
        # outputs of one sign, of both, of both with steps that no line fits, beyond 16 bits
        for factor, code in ((0.00513, 0), (0.00513, 128), (0.00053, 128), (0.04, 3))
    ]
    return graph_of(cases)


@pytest.mark.parametrize("board", cores("a57", "a76", "a720", "a7", "rv64gcv", "bpi-f3"))
@pytest.mark.parametrize("code", ["least", "most", "any"])
def test_the_largest_sums_equal_the_reference(code, board, virtual_board, tmp_path):
    graph = _graph()
    rng, inputs = np.random.default_rng(1), {}
    for name in graph.inputs:
        x = graph.tensors[name]
        info = np.iinfo(x.dtype.numpy)
        inputs[name] = rng.integers(info.min, info.max + 1, x.shape).astype(x.dtype.numpy)
        if code != "any":
            inputs[name][:] = info.min if code == "least" else info.max
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)


def test_kernels_are_chosen_by_what_fits():
    names = {
        board: [
            call.kernel.symbol
            for step in lower(_graph(), load_board(board)).lowered.steps
            for call in step.calls
        ]
        for board in ("a53", "a57", "a76")
    }
    assert any("dwconv_3x3s1_2_bytes_short" in name for name in names["a76"])
    assert not any("bytes" in name for name in names["a53"])
    for board, half in (("a53", False), ("a57", True), ("a76", False)):
        assert any("_narrow_half" in name for name in names[board]) == half
    for lines in ("conv_lines1", "conv_lines2"):
        assert any(lines in name for name in names["a76"])
        assert not any(lines in name for name in names["a53"])
    for of_board in names.values():
        assert any("conv_short" in name for name in of_board)
        assert any("conv_right" in name for name in of_board)
